# SPDX-License-Identifier: Apache-2.0
"""A training step in TensorFlow: one tf.function, on oneDNN unless the environment says otherwise, synthetic samples already in memory.

    [TF_ENABLE_ONEDNN_OPTS=0] tensorflow_step.py NETWORK PRECISION BATCH THREADS

NETWORK is lrn (the tutorial's), plain (the same without LRN), resnet44 or mlp; PRECISION is float or bfloat16. The whole step is
inside: forward, the loss with its decay terms, gradients and the update. It is TensorFlow's best way of running it on a CPU (with XLA it
is slower). In bfloat16 activations and weights are cast where they are used; LRN and the loss are in float, because TensorFlow has no LRN
in bfloat16.
"""

import os
import sys

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# By default TensorFlow uses oneDNN only on some processors: without AVX-512 a step took 1.6 times as long.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
import tensorflow as tf  # noqa: E402

import protocol  # noqa: E402

network, precision, batch, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(1)
random = np.random.RandomState(1)
computed = tf.bfloat16 if precision == "bfloat16" else tf.float32
variables, moments = [], []


def variable(values):
    variables.append(tf.Variable(values.astype(np.float32)))
    return variables[-1]


def parameter(*shape, deviation, bias=0.0):
    values = np.clip(random.standard_normal(shape), -2, 2) * deviation
    return variable(values), None if bias is None else variable(np.full(shape[-1], bias))


def cast(x, to=None):
    to = to or computed
    return x if x.dtype == to else tf.cast(x, to)


def convolution(x, layer, stride=1, padding="SAME"):
    x = tf.nn.conv2d(x, cast(layer[0]), stride, padding)
    return x if layer[1] is None else tf.nn.bias_add(x, cast(layer[1]))


def dense(x, layer):
    return tf.nn.bias_add(tf.matmul(x, cast(layer[0])), cast(layer[1]))


def tutorial():
    conv1 = parameter(5, 5, 3, 64, deviation=0.05)
    conv2 = parameter(5, 5, 64, 64, deviation=0.05, bias=0.1)
    local3 = parameter(2304, 384, deviation=0.04, bias=0.1)
    local4 = parameter(384, 192, deviation=0.04, bias=0.1)
    softmax_linear = parameter(192, 10, deviation=1 / 192)

    def pool(x):
        return tf.nn.max_pool2d(x, 3, 2, "SAME")

    def norm(x):
        if network == "plain":
            return x
        return cast(tf.nn.local_response_normalization(cast(x, tf.float32), 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75))

    def logits(x):
        x = norm(pool(tf.nn.relu(convolution(x, conv1))))
        x = pool(norm(tf.nn.relu(convolution(x, conv2))))
        x = tf.reshape(x, [batch, -1])
        x = tf.nn.relu(dense(x, local3))
        x = tf.nn.relu(dense(x, local4))
        return dense(x, softmax_linear)

    return logits, lambda: 0.004 * tf.nn.l2_loss(local3[0]) + 0.004 * tf.nn.l2_loss(local4[0])


def resnet44():
    def convolution_parameter(size, before, after):
        return parameter(size, size, before, after, deviation=(2 / (size * size * (before + after))) ** 0.5, bias=None)

    def norm_parameter(channels):
        running = [tf.Variable(np.full(channels, start, np.float32)) for start in (0.0, 1.0)]
        return variable(np.ones(channels)), variable(np.zeros(channels)), *running

    def norm(x, layer):
        scale, bias, mean, variance = layer
        y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=scale, offset=bias, mean=mean, variance=variance, epsilon=1e-5, exponential_avg_factor=0.003, is_training=True
        )
        mean.assign(new_mean)
        variance.assign(new_variance)
        return y

    first, first_norm, blocks, channels = convolution_parameter(3, 3, 16), norm_parameter(16), [], 16
    for stage in range(3):
        for _ in range(7):
            after = 16 << stage
            blocks.append((channels, after, convolution_parameter(3, channels, after), norm_parameter(after),
                           convolution_parameter(3, after, after), norm_parameter(after)))  # fmt: skip
            channels = after
    last = parameter(64, 11, deviation=(2 / 75) ** 0.5)
    one = [[0, 0], [1, 1], [1, 1], [0, 0]]  # one zero of padding on each side, whatever the stride

    def logits(x):
        x = tf.nn.relu(norm(convolution(x, first), first_norm))
        for before, after, conv1, norm1, conv2, norm2 in blocks:
            stride, margin, shortcut = after // before, (after - before) // 2, x
            if margin:
                shortcut = tf.pad(tf.nn.avg_pool2d(x, 2, 2, "VALID"), [[0, 0], [0, 0], [0, 0], [margin, margin]])
            y = tf.nn.relu(norm(convolution(x, conv1, stride, "SAME" if stride == 1 else one), norm1))
            x = tf.nn.relu(norm(convolution(y, conv2), norm2) + shortcut)
        return dense(tf.reduce_mean(x, [1, 2]), last)

    return logits, None


def mlp():
    hidden, last = parameter(784, 128, deviation=0.05), parameter(128, 10, deviation=0.1)
    return lambda x: dense(tf.nn.relu(dense(x, hidden)), last), None


logits_of, decay = {"lrn": tutorial, "plain": tutorial, "resnet44": resnet44, "mlp": mlp}[network]()
if network == "resnet44":
    moments = [tf.Variable(tf.zeros_like(v)) for v in variables]


@tf.function
def train(samples, labels):
    with tf.GradientTape() as tape:
        logits = cast(logits_of(cast(samples)), tf.float32)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        if decay is not None:
            loss += decay()
    gradients = tape.gradient(loss, variables)
    if moments:  # the decay of all parameters is added to the gradient, which takes less time than a part of the loss
        for v, m, g in zip(variables, moments, gradients):
            tf.raw_ops.ResourceApplyMomentum(var=v.handle, accum=m.handle, lr=0.01, grad=g + 2e-4 * v, momentum=0.9)
    else:
        for v, g in zip(variables, gradients):
            v.assign_sub(0.01 * g)
    return loss


SHAPES = {"lrn": (24, 24, 3), "plain": (24, 24, 3), "resnet44": (32, 32, 3), "mlp": (784,)}
batches = [
    (
        tf.constant(random.standard_normal((batch, *SHAPES[network])).astype(np.float32)),
        tf.constant(random.randint(0, 10, batch).astype(np.int64)),
    )
    for _ in range(4)
]
how = "tf.function" + (", casts, LRN in float" if precision == "bfloat16" else "")
protocol.serve({"name": "TensorFlow", "version": tf.__version__, "how": how}, lambda i: float(train(*batches[i % len(batches)])))
