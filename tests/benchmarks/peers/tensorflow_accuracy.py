# SPDX-License-Identifier: Apache-2.0
"""The precision that the tutorial's whole recipe reaches on CIFAR-10 in TensorFlow.

    tensorflow_accuracy.py DATA_DIR OUT_DIR [--steps N] [--threads N]

DATA_DIR contains cifar-10-batches-bin. Batch 128, one replica, plain SGD at rate 0.1, decay 0.004 on local3 and local4, averages
of the parameters by min(0.9999, (1 + n) / (10 + n)) after each update, images cropped to 24 x 24, flipped, changed in contrast
(brightness has no effect after standardisation) and standardised. The local response normalisation is TensorFlow's formula in
products of matrices, compared with TensorFlow's own operation at the start. Every 100 steps a line of the loss; every 5,000 the precision on
the 10,000 test images, with the averages and without, is written to OUT_DIR/precision.csv. A run that was stopped continues from its
last 1,000 steps (with other random numbers: only Cupola's are a function of the step).
"""

import argparse
import os
import pathlib
import sys
import time

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # by default TensorFlow does this only on some processors
import tensorflow as tf  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data_dir", type=pathlib.Path)
parser.add_argument("out_dir", type=pathlib.Path)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()
batch = 128
tf.config.threading.set_intra_op_parallelism_threads(args.threads)
tf.config.threading.set_inter_op_parallelism_threads(1)
args.out_dir.mkdir(parents=True, exist_ok=True)
saved = args.out_dir / "state.npz"
random = np.random.RandomState(1)


def read(*names):
    records = [np.fromfile(args.data_dir / "cifar-10-batches-bin" / name, np.uint8).reshape(-1, 3073) for name in names]
    records = np.concatenate(records)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy(), records[:, 0].astype(np.int64)


def parameter(*shape, deviation, bias=0.0):
    values = random.standard_normal(shape)
    while (outside := np.abs(values) > 2).any():  # values beyond two deviations are drawn again
        values[outside] = random.standard_normal(int(outside.sum()))
    return tf.Variable((deviation * values).astype(np.float32)), tf.Variable(np.full(shape[-1], bias, np.float32))


conv1 = parameter(5, 5, 3, 64, deviation=0.05)
conv2 = parameter(5, 5, 64, 64, deviation=0.05, bias=0.1)
local3 = parameter(2304, 384, deviation=0.04, bias=0.1)
local4 = parameter(384, 192, deviation=0.04, bias=0.1)
softmax_linear = parameter(192, 10, deviation=1 / 192)
variables = [v for layer in (conv1, conv2, local3, local4, softmax_linear) for v in layer]
averages = [tf.Variable(v) for v in variables]


def library_norm(x):
    return tf.nn.local_response_normalization(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)


alpha, beta = 0.001 / 9.0, 0.75
window = tf.linalg.band_part(tf.ones([64, 64]), 4, 4)


@tf.custom_gradient
def norm(x):
    """library_norm(x), whose kernels on the CPU take a quarter of a step: the sums over channels as a product with a band matrix."""
    flat = tf.reshape(x, [-1, 64])
    scale = 1 + alpha * tf.matmul(flat * flat, window)
    power = tf.math.rsqrt(scale * tf.sqrt(scale))  # scale ** -beta

    def gradient(upstream):
        scaled = tf.reshape(upstream, [-1, 64]) * power
        return tf.reshape(scaled - 2 * alpha * beta * flat * tf.matmul(scaled * flat / scale, window), tf.shape(x))

    return tf.reshape(flat * power, tf.shape(x)), gradient


def difference_of_norms():
    """The largest error of norm and of its gradient against TensorFlow's own, relative to the largest value."""
    x, upstream = tf.random.normal([2, 12, 12, 64], stddev=30.0), tf.random.normal([2, 12, 12, 64])
    found = []
    for function in (library_norm, norm):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        found.append((y, tape.gradient(y, x, upstream)))
    return max(float(tf.reduce_max(tf.abs(a - b)) / tf.reduce_max(tf.abs(a))) for a, b in zip(*found))


def logits_of(x, values):
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = values
    x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w1, 1, "SAME"), b1))
    x = norm(tf.nn.max_pool2d(x, 3, 2, "SAME"))
    x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w2, 1, "SAME"), b2))
    x = tf.nn.max_pool2d(norm(x), 3, 2, "SAME")
    x = tf.reshape(x, [-1, 2304])
    x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w3), b3))
    x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w4), b4))
    return tf.nn.bias_add(tf.matmul(x, w5), b5)


def standardised(x):
    mean, variance = tf.nn.moments(x, [1, 2, 3], keepdims=True)
    return (x - mean) / tf.maximum(tf.sqrt(variance), 1 / np.sqrt(24 * 24 * 3))


if (difference := difference_of_norms()) > 1e-5:
    sys.exit(f"the normalisation differs from TensorFlow's own by {difference}")
train_images, train_labels = read(*(f"data_batch_{i}.bin" for i in range(1, 6)))
test_images, test_labels = read("test_batch.bin")
images = tf.constant(train_images)
labels = tf.constant(train_labels)


def augmented(index):
    count = index.shape[0]
    rows = tf.random.uniform([count, 1], 0, 9, tf.int32) + tf.range(24)[None]
    columns = tf.random.uniform([count, 1], 0, 9, tf.int32) + tf.range(24)[None]
    columns = tf.where(tf.random.uniform([count, 1]) < 0.5, tf.reverse(columns, [1]), columns)
    pixels = (index[:, None, None] * 32 + rows[:, :, None]) * 32 + columns[:, None, :]
    x = tf.cast(tf.gather(tf.reshape(images, [-1, 3]), pixels), tf.float32)
    factor = tf.random.uniform([count, 1, 1, 1], 0.2, 1.8)
    mean = tf.reduce_mean(x, [1, 2], keepdims=True)
    return standardised((x - mean) * factor + mean)


@tf.function
def train(index, rate, decay):
    x, y = augmented(index), tf.gather(labels, index)
    with tf.GradientTape() as tape:
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits_of(x, variables))
        loss = tf.reduce_mean(entropy) + 0.004 * tf.nn.l2_loss(local3[0]) + 0.004 * tf.nn.l2_loss(local4[0])
    gradients = tape.gradient(loss, variables)
    for variable, average, gradient in zip(variables, averages, gradients):
        value = variable.assign_sub(rate * gradient)
        average.assign_sub((1 - decay) * (average - value))
    return loss


@tf.function
def correct(x, y, values):
    return tf.reduce_sum(tf.cast(tf.argmax(logits_of(x, values), 1) == y, tf.int32))


def precision(values):
    right = 0
    for begin in range(0, len(test_labels), 200):
        x = standardised(tf.cast(test_images[begin : begin + 200, 4:28, 4:28], tf.float32))
        right += int(correct(x, test_labels[begin : begin + 200], [tf.convert_to_tensor(v) for v in values]))
    return right / len(test_labels)


first = 0
if saved.exists():
    state = np.load(saved)
    first = int(state["step"])
    for i, (variable, average) in enumerate(zip(variables, averages)):
        variable.assign(state[f"variable{i}"])
        average.assign(state[f"average{i}"])
tf.random.set_seed(first + 1)
order = np.random.RandomState(first + 1)
log = open(args.out_dir / "train.log", "a", buffering=1)
table = open(args.out_dir / "precision.csv", "a", buffering=1)
if first == 0:
    print("step,precision_with_averages,precision", file=table)
left = np.empty(0, np.int32)
started = time.time()
for step in range(first, args.steps):
    if len(left) < batch:
        left = np.concatenate([left, order.permutation(len(train_labels)).astype(np.int32)])
    index, left = left[:batch], left[batch:]
    loss = train(tf.constant(index), tf.constant(0.1 * 0.1 ** (step // 136_718)), tf.constant(min(0.9999, (1 + step) / (10 + step))))
    if step % 100 == 0:
        seconds, started = time.time() - started, time.time()
        print(f"step {step}, loss = {float(loss):.2f} ({100 * batch / seconds:.0f} examples/sec)", file=log)
        if not np.isfinite(float(loss)):
            sys.exit(f"the loss of step {step} is {float(loss)}")
    done = step + 1
    if done % 1000 == 0 or done == args.steps:
        values = {f"variable{i}": v.numpy() for i, v in enumerate(variables)}
        values |= {f"average{i}": v.numpy() for i, v in enumerate(averages)}
        np.savez(args.out_dir / "next.npz", step=done, **values)
        os.replace(args.out_dir / "next.npz", saved)
    if done % 5000 == 0 or done == args.steps:
        print(f"{done},{precision(averages):.4f},{precision(variables):.4f}", file=table)
