# SPDX-License-Identifier: Apache-2.0
"""The tutorial's training step in TensorFlow: one tf.function on oneDNN, synthetic images already in memory.

The whole step is inside: forward, the loss with its two decay terms, gradients and the update. It is TensorFlow's best way of
running it on a CPU (with XLA it is slower).
"""

import os
import sys

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf  # noqa: E402

import protocol  # noqa: E402

threads, batch = int(sys.argv[1]), int(sys.argv[2])
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(1)
random = np.random.RandomState(1)


def parameter(*shape, deviation, bias=0.0):
    values = np.clip(random.standard_normal(shape), -2, 2) * deviation
    return tf.Variable(values.astype(np.float32)), tf.Variable(np.full(shape[-1], bias, np.float32))


conv1 = parameter(5, 5, 3, 64, deviation=0.05)
conv2 = parameter(5, 5, 64, 64, deviation=0.05, bias=0.1)
local3 = parameter(2304, 384, deviation=0.04, bias=0.1)
local4 = parameter(384, 192, deviation=0.04, bias=0.1)
softmax_linear = parameter(192, 10, deviation=1 / 192)
variables = [v for layer in (conv1, conv2, local3, local4, softmax_linear) for v in layer]


def convolution(x, layer):
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, layer[0], 1, "SAME"), layer[1]))


def pool(x):
    return tf.nn.max_pool2d(x, 3, 2, "SAME")


def norm(x):
    return tf.nn.local_response_normalization(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)


def dense(x, layer):
    return tf.nn.bias_add(tf.matmul(x, layer[0]), layer[1])


@tf.function
def train(images, labels):
    with tf.GradientTape() as tape:
        x = norm(pool(convolution(images, conv1)))
        x = pool(norm(convolution(x, conv2)))
        x = tf.reshape(x, [batch, -1])
        x = tf.nn.relu(dense(x, local3))
        x = tf.nn.relu(dense(x, local4))
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=dense(x, softmax_linear))
        loss = tf.reduce_mean(entropy) + 0.004 * tf.nn.l2_loss(local3[0]) + 0.004 * tf.nn.l2_loss(local4[0])
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(0.01 * gradient)
    return loss


batches = [
    (
        tf.constant(random.standard_normal((batch, 24, 24, 3)).astype(np.float32)),
        tf.constant(random.randint(0, 10, batch).astype(np.int64)),
    )
    for _ in range(4)
]
protocol.serve(
    {"name": "TensorFlow", "version": tf.__version__, "how": "tf.function, oneDNN"},
    lambda i: float(train(*batches[i % len(batches)])),
)
