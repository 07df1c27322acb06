#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden.safetensors beside it: PyTorch's figures for small cases, which the tests read with golden.hpp.

Run by hand, with the PyTorch that the benchmarks set up, when a case is added (the output is the same each time, but for the
last bit of a norm, which depends on numpy's BLAS):

    tests/benchmarks/run setup
    .deps/peers/torch/bin/python tests/golden/generate.py
    .deps/peers/tensorflow/bin/python tests/golden/generate.py --check-tensorflow

The last group, which needs numpy only, can be made anew alone; every other tensor keeps its bytes:

    python3 tests/golden/generate.py --only replica_rules

Inputs are floats from a seeded numpy generator; PyTorch computes in double, so a figure carries no rounding but its last. The
third command has TensorFlow compute the same cases with its own SAME padding and its own operations, and compares.

Each function below adds the cases of a group, and says what their tensors are. Activations are NHWC, convolution weights OHWI,
linear weights [out, in], as in Cupola; `..._gradient` is the gradient of what it is named after.
"""

import collections
import json
import math
import pathlib
import sys

import numpy as np

FILE = pathlib.Path(__file__).resolve().parent / "golden.safetensors"


# ---------------------------------------------------------------------------------------------------------------- writing
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Golden:
    """The cases: their tensors are named group/number/name, and their texts are the file's metadata."""

    def __init__(self):
        self.tensors, self.texts, self.counts = {}, {}, collections.Counter()

    def case(self, group, title, floats, **others):
        """Rounds `floats` to float; a float among the others becomes a double, and an integer or a bool 64 bits."""
        place = f"{group}/{self.counts[group]}"
        self.counts[group] += 1
        self.texts[place] = title
        for name, value in others.items():
            if isinstance(value, str):
                self.texts[f"{place}/{name}"] = value
            else:
                array = np.asarray(value)
                self.tensors[f"{place}/{name}"] = array.astype(np.int64) if array.dtype == bool else array
        for name, value in floats.items():
            self.tensors[f"{place}/{name}"] = np.asarray(value, dtype=np.float32)

    def write(self, file):
        """With the checksum that Cupola's reader checks. The widest elements come first, so that all are aligned."""
        arrays = dict(sorted(self.tensors.items(), key=lambda tensor: -tensor[1].itemsize))
        header, end = {"__metadata__": {**self.texts, "crc32c": "00000000"}}, 0
        for name, array in arrays.items():
            begin, end = end, end + array.nbytes
            kind = f"{array.dtype.kind.upper()}{8 * array.itemsize}"
            header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        content = len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values())
        file.write_bytes(content.replace(b'"00000000"', f'"{crc32c(content):08x}"'.encode(), 1))
        print(f"{file.name}: {len(arrays)} tensors, {len(content)} bytes")


def figures(file):
    """The tensors of the file, by name, in double."""
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    types = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}
    result = {}
    for name, tensor in json.loads(content[8:begin]).items():
        if name != "__metadata__":
            first, last = (begin + offset for offset in tensor["data_offsets"])
            values = np.frombuffer(content[first:last], types[tensor["dtype"]])
            result[name] = values.reshape(tensor["shape"]).astype(np.float64)
    return result


def read(file):
    """The cases of the file, as they were written."""
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    golden = Golden()
    for name, tensor in json.loads(content[8:begin]).items():
        if name == "__metadata__":
            golden.texts = {key: text for key, text in tensor.items() if key != "crc32c"}
            continue
        first, last = (begin + offset for offset in tensor["data_offsets"])
        kind = tensor["dtype"][0].lower() + str(int(tensor["dtype"][1:]) // 8)
        golden.tensors[name] = np.frombuffer(content[first:last], kind).reshape(tensor["shape"])
    return golden


# ------------------------------------------------------------------------------------------------------------- geometry
def same_padding(size, kernel, stride):
    output = -(-size // stride)
    total = max((output - 1) * stride + kernel - size, 0)
    return output, total // 2, total - total // 2


def window_of(height, width, kernel, stride, same):
    """(output height, output width, top, left, bottom, right)"""
    if not same:
        return (height - kernel) // stride + 1, (width - kernel) // stride + 1, 0, 0, 0, 0
    out_h, top, bottom = same_padding(height, kernel, stride)
    out_w, left, right = same_padding(width, kernel, stride)
    return out_h, out_w, top, left, bottom, right


def window(kernel, stride, same, top, left, bottom, right):
    """Padding is written out, since TensorFlow's SAME may put one more at the end than at the beginning."""
    return {"kernel": kernel, "stride": stride, "same": same, "padding": [[top, bottom], [left, right]]}


def forward_backward(x, y, dy, gx):
    return {"input": x, "output": y, "output_gradient": dy, "input_gradient": gx}


def with_parameters(x, weights, biases, y, dy, gx, gw, gb):
    parameters = {"weights": weights, "biases": biases, "weight_gradient": gw, "bias_gradient": gb}
    return {**forward_backward(x, y, dy, gx), **parameters}


def floats(random, *shape, scale=1.0):
    return (scale * random.standard_normal(shape)).astype(np.float32)


# name, batch, height, width, channels, filters, kernel, stride, same
CONVOLUTIONS = [
    ("5x5, SAME, as conv1", 2, 8, 8, 3, 16, 5, 1, True),
    ("5x5, SAME, batch 1, odd size", 1, 7, 9, 5, 6, 5, 1, True),
    ("3x3, SAME, stride 2, even size: one more at the end", 2, 8, 6, 4, 8, 3, 2, True),
    ("3x3, SAME, stride 2, odd size", 3, 7, 5, 3, 7, 3, 2, True),
    ("3x3, SAME, stride 3", 2, 10, 11, 4, 5, 3, 3, True),
    ("5x5, VALID", 2, 9, 7, 3, 4, 5, 1, False),
    ("3x3, VALID, stride 2, last row and column unused", 2, 8, 10, 6, 5, 3, 2, False),
    ("1x1, SAME", 2, 5, 4, 8, 16, 1, 1, True),
    ("1x1, SAME, stride 2: some inputs unused", 1, 7, 6, 3, 4, 1, 2, True),
    ("1x1 image, 3x3, SAME", 4, 1, 1, 8, 8, 3, 1, True),
    ("3x3, SAME, 16 to 16 channels", 3, 6, 6, 16, 16, 3, 1, True),
    ("one channel, one filter", 1, 5, 5, 1, 1, 3, 1, True),
]
# name, batch, ids per sample, rows of the table, width, padding (-1 for none)
EMBEDDINGS = [
    ("7 ids, width 5", 3, 4, 7, 5, -1),
    ("one id", 1, 1, 1, 1, -1),
    ("with a padding", 4, 9, 11, 8, 2),
    ("more rows than ids", 2, 5, 300, 3, -1),
]
LINEARS = [("5 to 3", 4, 5, 3), ("64 to 10, batch 1", 1, 64, 10), ("37 to 19, odd", 7, 37, 19), ("1 to 1", 3, 1, 1)]
# name, batch, height, width, channels, kernel, stride, same, ties
POOLS = [
    ("3x3, stride 2, SAME, even size: padding at the end", 2, 8, 6, 8, 3, 2, True, False),
    ("3x3, stride 2, SAME, even size, ties", 2, 8, 6, 8, 3, 2, True, True),
    ("3x3, stride 2, SAME, odd size", 2, 7, 9, 5, 3, 2, True, False),
    ("2x2, stride 2, VALID", 2, 6, 8, 16, 2, 2, False, False),
    ("2x2, stride 2, VALID, last row unused", 1, 7, 5, 3, 2, 2, False, False),
    ("2x2, stride 2, SAME, odd size", 1, 7, 5, 3, 2, 2, True, False),
    ("3x3, stride 1, SAME", 1, 5, 4, 4, 3, 1, True, False),
    ("2x2, stride 1, SAME", 1, 5, 4, 4, 2, 1, True, False),
    ("3x3, stride 3, VALID", 3, 9, 6, 2, 3, 3, False, False),
    ("the whole image", 2, 6, 6, 10, 6, 6, False, False),
]
# name, batch, height, width, channels, radius, bias, alpha, beta, scale of the input
NORMS = [
    ("window 9, as the tutorial", 2, 4, 4, 64, 4, 1.0, 0.001 / 9.0, 0.75, 20.0),
    ("window 9, strong", 2, 3, 5, 24, 4, 1.0, 0.1, 0.75, 1.5),
    ("window 5", 1, 3, 3, 16, 2, 2.0, 0.25, 0.75, 1.5),
    ("window 9 on fewer channels", 2, 3, 2, 6, 4, 1.0, 0.1, 0.75, 1.5),
    ("window 5, beta 0.5, odd channels", 3, 2, 3, 13, 2, 1.0, 0.2, 0.5, 2.0),
]


def conv2d(torch, golden):
    for index, (name, n, h, w, c, k, kernel, stride, same) in enumerate(CONVOLUTIONS):
        random = np.random.RandomState(100 + index)
        oh, ow, top, left, bottom, right = window_of(h, w, kernel, stride, same)
        x, weights = floats(random, n, h, w, c), floats(
            random, k, kernel, kernel, c, scale=1 / math.sqrt(kernel * kernel * c)
        )
        biases, dy = floats(random, k), floats(random, n, oh, ow, k)
        tx = torch.tensor(x, dtype=torch.float64).permute(0, 3, 1, 2).requires_grad_()
        tw = torch.tensor(weights, dtype=torch.float64).permute(0, 3, 1, 2).contiguous().requires_grad_()
        tb = torch.tensor(biases, dtype=torch.float64).requires_grad_()
        padded = torch.nn.functional.pad(tx, (left, right, top, bottom))
        y = torch.nn.functional.conv2d(padded, tw, tb, stride=stride)
        assert tuple(y.shape) == (n, k, oh, ow), (name, y.shape)
        gx, gw, gb = torch.autograd.grad(y, (tx, tw, tb), torch.tensor(dy, dtype=torch.float64).permute(0, 3, 1, 2))
        nhwc = lambda t: t.detach().permute(0, 2, 3, 1).numpy()
        values = with_parameters(x, weights, biases, nhwc(y), dy, nhwc(gx), nhwc(gw), gb)
        golden.case("conv2d", name, values, **window(kernel, stride, same, top, left, bottom, right))


def linear(torch, golden):
    for index, (name, n, inputs, outputs) in enumerate(LINEARS):
        random = np.random.RandomState(200 + index)
        x, weights = floats(random, n, inputs), floats(random, outputs, inputs, scale=1 / math.sqrt(inputs))
        biases, dy = floats(random, outputs), floats(random, n, outputs)
        tx, tw, tb = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, weights, biases))
        y = torch.nn.functional.linear(tx, tw, tb)
        gradients = torch.autograd.grad(y, (tx, tw, tb), torch.tensor(dy, dtype=torch.float64))
        golden.case("linear", name, with_parameters(x, weights, biases, y.detach(), dy, *gradients))


def embedding(torch, golden):
    """`padding` is an id whose row is zeros, or -1."""
    for index, (name, n, ids_per_sample, count, width, padding) in enumerate(EMBEDDINGS):
        random = np.random.RandomState(250 + index)
        ids = random.randint(0, count, (n, ids_per_sample)).astype(np.int32)
        module = torch.nn.Embedding(count, width, padding_idx=padding if padding >= 0 else None).double()
        with torch.no_grad():
            table = floats(random, count, width)
            if padding >= 0:
                table[padding] = 0  # what PyTorch initialises it with
            module.weight.copy_(torch.tensor(table, dtype=torch.float64))
        dy = floats(random, n, ids_per_sample, width)
        y = module(torch.tensor(ids))
        y.backward(torch.tensor(dy, dtype=torch.float64))
        values = {"table": table, "output": y.detach(), "output_gradient": dy, "table_gradient": module.weight.grad}
        golden.case("embedding", name, values, ids=ids, padding=padding)


def pool(torch, golden, kind):
    """Padding never wins a maximum, and an average counts only what lies inside the image. With ties, equal maxima share a
    window, as after a ReLU; the gradient goes to the first of them in row order."""
    functional = torch.nn.functional
    for index, (name, n, h, w, c, kernel, stride, same, ties) in enumerate(POOLS):
        if ties and kind == "average":
            continue
        random = np.random.RandomState(300 + index)
        oh, ow, top, left, bottom, right = window_of(h, w, kernel, stride, same)
        x, dy = floats(random, n, h, w, c), floats(random, n, oh, ow, c)
        if ties:
            x = np.maximum(np.round(x), 0).astype(np.float32)
        tx = torch.tensor(x, dtype=torch.float64).permute(0, 3, 1, 2).contiguous().requires_grad_()
        pads = (left, right, top, bottom)
        if kind == "max":
            y = functional.max_pool2d(functional.pad(tx, pads, value=-math.inf), kernel, stride)
        else:
            inside = functional.pad(torch.ones_like(tx), pads)
            y = functional.avg_pool2d(functional.pad(tx, pads), kernel, stride) / functional.avg_pool2d(
                inside, kernel, stride
            )
        assert tuple(y.shape) == (n, c, oh, ow), (name, y.shape)
        (gx,) = torch.autograd.grad(y, tx, torch.tensor(dy, dtype=torch.float64).permute(0, 3, 1, 2))
        nhwc = lambda t: t.detach().permute(0, 2, 3, 1).numpy()
        values = forward_backward(x, nhwc(y), dy, nhwc(gx))
        golden.case(f"{kind}_pool2d", name, values, **window(kernel, stride, same, top, left, bottom, right))


def local_response_norm(torch, golden):
    """y[c] = x[c] / (bias + alpha * sum of x[k]^2 over |k - c| <= depth_radius)^beta: alpha is per element, as in TensorFlow."""
    for index, (name, n, h, w, c, radius, bias, alpha, beta, scale) in enumerate(NORMS):
        random = np.random.RandomState(400 + index)
        bias, alpha, beta = (float(np.float32(v)) for v in (bias, alpha, beta))
        x, dy = floats(random, n, h, w, c, scale=scale), floats(random, n, h, w, c)
        tx = torch.tensor(x, dtype=torch.float64).permute(0, 3, 1, 2).requires_grad_()
        size = 2 * radius + 1  # PyTorch divides alpha by the window
        y = torch.nn.functional.local_response_norm(tx, size, alpha=alpha * size, beta=beta, k=bias)
        (gx,) = torch.autograd.grad(y, tx, torch.tensor(dy, dtype=torch.float64).permute(0, 3, 1, 2))
        nhwc = lambda t: t.detach().permute(0, 2, 3, 1).numpy()
        values = {**forward_backward(x, nhwc(y), dy, nhwc(gx)), "bias": bias, "alpha": alpha, "beta": beta}
        golden.case("local_response_norm", name, values, depth_radius=radius)


def relu(torch, golden):
    """Zeros of both signs are among the inputs."""
    random = np.random.RandomState(500)
    x, dy = floats(random, 101), floats(random, 101)
    x[:4] = 0.0, -0.0, 1e-30, -1e-30
    tx = torch.tensor(x, requires_grad=True)
    y = torch.relu(tx)
    (gx,) = torch.autograd.grad(y, tx, torch.tensor(dy))
    golden.case("relu", "101 elements", forward_backward(x, y.detach(), dy, gx))


def cross_entropy(torch, golden):
    """The loss is the mean over the batch of -sum_k q_k log softmax(logits)_k; q is (1 - s) at the label, plus s/classes
    everywhere."""
    cases = [
        ("10 classes", 8, 10, 0.0, 2.0),
        ("10 classes, smoothed", 8, 10, 0.1, 2.0),
        ("batch 1, smoothed", 1, 7, 0.25, 1.0),
        ("two classes", 5, 2, 0.0, 1.0),
        ("large logits", 6, 10, 0.0, 200.0),
        ("large logits, smoothed", 6, 10, 0.1, 200.0),
        ("1000 classes", 2, 1000, 0.0, 3.0),
    ]
    for index, (name, n, classes, smoothing, scale) in enumerate(cases):
        random = np.random.RandomState(600 + index)
        logits, labels = floats(random, n, classes, scale=scale), random.randint(0, classes, n).astype(np.int32)
        smoothing = float(np.float32(smoothing))
        tl = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        target = torch.tensor(labels, dtype=torch.int64)
        each = torch.nn.functional.cross_entropy(tl, target, label_smoothing=smoothing, reduction="none")
        loss = torch.nn.functional.cross_entropy(tl, target, label_smoothing=smoothing)
        (gradient,) = torch.autograd.grad(loss, tl)
        values = {"label_smoothing": smoothing, "logits": logits, "sample_losses": each.detach(), "logits_gradient": gradient}
        golden.case("cross_entropy", name, values, labels=labels, loss=loss.item())


def losses(torch, golden):
    """Outputs are NHWC, or samples x 1 x 1 x channels; PyTorch computes on NCHW. The loss is PyTorch's mean, and the gradient is
    that of this mean. `kind` is the name of Cupola's loss; of Huber's, with its delta. `weights`, if there are any, are those of
    the classes or of positives; there are `targets` or `labels`, and `ignored` if a label is."""
    functional = torch.nn.functional

    def case(name, index, kind, shape, loss, *, labels=None, soft=None, weights=(), smoothing=0.0, ignored=None):
        random = np.random.RandomState(900 + index)
        batch, height, width, channels = shape
        outputs = floats(random, batch, height, width, channels, scale=2.0)
        weights = np.asarray(weights, dtype=np.float32)
        smoothing = float(np.float32(smoothing))
        t = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
        planes = t.permute(0, 3, 1, 2) if height * width > 1 else t.reshape(batch, channels)
        if labels:
            integers = random.randint(0, channels, (batch, height, width)).astype(np.int32)
            if ignored is not None:
                integers[random.random_sample(integers.shape) < 0.3] = ignored
            target = torch.tensor(integers.reshape(planes[:, 0].shape), dtype=torch.int64)
        else:
            targets = soft(random, outputs.shape).astype(np.float32)
            target = torch.tensor(targets, dtype=torch.float64)
            target = target.permute(0, 3, 1, 2) if height * width > 1 else target.reshape(batch, channels)
        value = loss(planes, target, torch.tensor(weights, dtype=torch.float64), smoothing, ignored)
        (gradient,) = torch.autograd.grad(value, t)
        values = {"label_smoothing": smoothing, "outputs": outputs, "gradient": gradient}
        if weights.size:
            values["weights"] = weights
        if not labels:
            values["targets"] = targets
        others = {"labels": integers} if labels else {}
        if ignored is not None:
            others["ignored"] = ignored
        golden.case("losses", name, values, kind=kind, loss=value.item(), **others)

    def near(random, shape):
        return 2.0 * random.standard_normal(shape)

    def fractions(random, shape):
        return random.random_sample(shape)

    def distribution(random, shape):
        powers = np.exp(random.standard_normal(shape))
        return powers / powers.sum(axis=-1, keepdims=True)

    def entropy(planes, target, weights, smoothing, ignored):
        return functional.cross_entropy(
            planes,
            target,
            weight=weights if weights.numel() else None,
            label_smoothing=smoothing,
            **({} if ignored is None else {"ignore_index": ignored}),
        )

    def binary(planes, target, weights, *_):
        shape = (1, -1) + (1,) * (planes.dim() - 2)
        return functional.binary_cross_entropy_with_logits(planes, target, pos_weight=weights.reshape(shape))

    weights = [0.5, 4.0, 1.0, 0.0, 2.5]
    row, image = (7, 1, 1, 5), (2, 4, 3, 5)
    case("squares", 0, "mean_squared_error", row, lambda x, t, *_: functional.mse_loss(x, t), soft=near)
    case("absolute values", 1, "mean_absolute_error", image, lambda x, t, *_: functional.l1_loss(x, t), soft=near)
    case("Huber, delta 1", 2, "huber_1", row, lambda x, t, *_: functional.huber_loss(x, t), soft=near)
    case("Huber, delta 2.5", 3, "huber_2.5", image, lambda x, t, *_: functional.huber_loss(x, t, delta=2.5), soft=near)
    case("binary", 4, "binary_cross_entropy", image, binary, soft=fractions, weights=[1.0])
    case("binary, weight 3", 5, "binary_cross_entropy", row, binary, soft=fractions, weights=[3.0])
    positive = [0.5, 4.0, 1.0, 3.0, 2.5]
    case("binary, weights", 6, "weighted_binary_cross_entropy", image, binary, soft=fractions, weights=positive)
    case("labels per position", 7, "cross_entropy", image, entropy, labels=True, smoothing=0.1)
    case("class weights", 8, "weighted_cross_entropy", row, entropy, labels=True, weights=weights)
    case("class weights, smoothed", 9, "weighted_cross_entropy", row, entropy, labels=True, weights=weights, smoothing=0.1)
    case("ignored label", 10, "weighted_cross_entropy", row, entropy, labels=True, weights=[1.0] * 5, ignored=3)
    settings = {"labels": True, "weights": weights, "smoothing": 0.2, "ignored": 255}
    case("class weights, smoothed, ignored, per position", 11, "weighted_cross_entropy", image, entropy, **settings)
    case("soft", 12, "soft_cross_entropy", row, entropy, soft=distribution)
    settings = {"soft": fractions, "weights": weights, "smoothing": 0.1}
    case("soft, class weights, smoothed, per position", 13, "soft_cross_entropy", image, entropy, **settings)


def sgd(torch, golden):
    """Twenty steps on a least-squares problem. The gradients that the optimiser is handed at each step are part of the case
    ([steps, parameters], rows exact floats), so a test needs no model. `trace` is the parameters after each step. Decay is coupled
    (added to the gradient, PyTorch's SGD) or decoupled (parameters *= 1 - learning_rate * decay before the update, PyTorch's AdamW).
    """
    cases = [
        ("plain", 0.1, 0.0, 0.0, False, False),
        ("momentum", 0.05, 0.9, 0.0, False, False),
        ("nesterov", 0.05, 0.9, 0.0, True, False),
        ("coupled decay", 0.1, 0.0, 0.05, False, False),
        ("momentum, coupled decay", 0.05, 0.9, 0.05, False, False),
        ("nesterov, coupled decay", 0.05, 0.9, 0.05, True, False),
        ("decoupled decay", 0.1, 0.0, 0.05, False, True),
        ("momentum, decoupled decay", 0.05, 0.9, 0.05, False, True),
        ("nesterov, decoupled decay", 0.05, 0.9, 0.05, True, True),
    ]
    steps, size = 20, 7
    for index, (name, rate, momentum, decay, nesterov, decoupled) in enumerate(cases):
        random = np.random.RandomState(700 + index)
        matrix, target = random.standard_normal((9, size)), random.standard_normal(9)
        initial = floats(random, size).astype(np.float64)
        w = torch.tensor(initial, requires_grad=True)
        optimiser = torch.optim.SGD(
            [w], lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=0.0 if decoupled else decay
        )
        gradients, trace = [], []
        for _ in range(steps):
            gradient = (matrix.T @ (matrix @ w.detach().numpy() - target) / 9).astype(np.float32).astype(np.float64)
            w.grad = torch.tensor(gradient)
            if decoupled:  # PyTorch's SGD has only the coupled kind: this is the line of its AdamW
                with torch.no_grad():
                    w.mul_(1 - rate * decay)
            optimiser.step()
            gradients.append(gradient)
            trace.append(w.detach().numpy().copy())
        settings = {"learning_rate": rate, "momentum": momentum, "weight_decay": decay}
        settings |= {"nesterov": nesterov, "decoupled": decoupled}
        golden.case("sgd", name, {}, **settings, initial=initial, gradients=gradients, trace=trace)


# name, kind, numbers, l2 of the first tensor, largest norm, largest value
OPTIMIZERS = [
    ("sgd", "sgd", (0.1, 0.0, 0.0, 0), 0.0, 0.0, 0.0),
    ("sgd, momentum, decay", "sgd", (0.05, 0.9, 0.05, 0), 0.0, 0.0, 0.0),
    ("sgd, nesterov, l2", "sgd", (0.05, 0.9, 0.0, 1), 0.1, 0.0, 0.0),
    ("adam", "adam", (0.1, 0.9, 0.999, 1e-8, 0.0), 0.0, 0.0, 0.0),
    ("adam, other betas, decay, l2", "adam", (0.05, 0.8, 0.95, 1e-3, 0.1), 0.05, 0.0, 0.0),
    ("adamw", "adamw", (0.1, 0.9, 0.999, 1e-8, 0.01), 0.0, 0.0, 0.0),
    ("adamw, large decay, l2", "adamw", (0.05, 0.9, 0.99, 1e-6, 0.5), 0.1, 0.0, 0.0),
    ("rmsprop", "rmsprop", (0.05, 0.9, 0.0, 1e-10, 0.0, 1.0), 0.0, 0.0, 0.0),
    ("rmsprop as Inception's", "rmsprop", (0.1, 0.9, 0.9, 1.0, 0.0, 1.0), 0.1, 0.0, 0.0),
    ("rmsprop as Keras's, from 0", "rmsprop", (0.01, 0.9, 0.5, 1e-7, 0.0, 0.0), 0.0, 0.0, 0.0),
    ("sgd, clipped by norm", "sgd", (0.1, 0.9, 0.0, 0), 0.1, 2.0, 0.0),
    ("sgd, clipped by value, decay", "sgd", (0.1, 0.0, 0.05, 0), 0.1, 0.0, 0.8),
    ("adamw, clipped by norm, then by value", "adamw", (0.1, 0.9, 0.999, 1e-8, 0.01), 0.1, 2.0, 0.5),
    ("adam, clipped by norm, decay", "adam", (0.1, 0.9, 0.999, 1e-8, 0.1), 0.0, 1.0, 0.0),
]


class TensorFlowRmsProp:
    """TensorFlow's ApplyRMSProp: PyTorch has epsilon outside the root."""

    def __init__(self, tensors, numbers):
        self.tensors, self.numbers = tensors, numbers
        self.square = [t.detach().clone().fill_(numbers[5]) for t in tensors]
        self.velocity = [t.detach().clone().zero_() for t in tensors]

    def step(self):
        rate, share, momentum, epsilon, decay, _ = self.numbers
        for w, square, velocity in zip(self.tensors, self.square, self.velocity):
            g = w.grad + decay * w.detach()
            square += (1 - share) * (g * g - square)
            velocity.mul_(momentum).add_(rate * g / (square + epsilon).sqrt())
            w.data -= velocity


def optimizer_of(torch, kind, tensors, n):
    if kind == "sgd":
        return torch.optim.SGD(tensors, lr=n[0], momentum=n[1], weight_decay=n[2], nesterov=bool(n[3]))
    if kind == "rmsprop":
        return TensorFlowRmsProp(tensors, n)
    make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return make(tensors, lr=n[0], betas=(n[1], n[2]), eps=n[3], weight_decay=n[4])


def optimizers(torch, golden):
    """Like `sgd`, for every optimiser: the parameters are two tensors, of `first` elements and of the rest, and l2 * w of the first
    is part of the loss's gradient, which is clipped to a norm over both tensors and to a value (0: not clipped) before the
    optimiser's step. `trace` is by PyTorch in double, `float_trace` by PyTorch in float. `numbers` are the optimiser's:
      sgd       rate, momentum, decay, 1 for Nesterov
      adam      rate, beta1, beta2, epsilon, decay
      adamw     rate, beta1, beta2, epsilon, decay
      rmsprop   rate, decay of the mean square, momentum, epsilon, decay, start; TensorFlow's rule, which PyTorch does not have:
                computed by numpy in double and in float, and compared with TensorFlow's own"""
    steps, size, first = 20, 19, 12
    for index, (name, kind, numbers, l2, max_norm, max_value) in enumerate(OPTIMIZERS):
        random = np.random.RandomState(900 + index)
        matrix, target = random.standard_normal((23, size)), random.standard_normal(23)
        matrix[:, 3] = 0  # a parameter that the loss does not depend on
        initial = floats(random, size)
        gradients, traces, clipped = [], [], 0
        for kind_of_number in (torch.float64, torch.float32):
            tensors = [
                torch.tensor(part, dtype=kind_of_number, requires_grad=True) for part in (initial[:first], initial[first:])
            ]
            optimizer = optimizer_of(torch, kind, tensors, numbers)
            trace = []
            for step in range(steps):
                if kind_of_number == torch.float64:
                    w = np.concatenate([t.detach().numpy() for t in tensors])
                    gradients.append((matrix.T @ (matrix @ w - target) / 23).astype(np.float32))
                for tensor, part, coefficient in zip(tensors, np.split(gradients[step], [first]), (l2, 0.0)):
                    tensor.grad = torch.tensor(part, dtype=kind_of_number) + coefficient * tensor.detach()
                if max_norm:
                    clipped += torch.nn.utils.clip_grad_norm_(tensors, max_norm).item() > max_norm
                if max_value:
                    clipped += max(t.grad.abs().max().item() for t in tensors) > max_value
                    torch.nn.utils.clip_grad_value_(tensors, max_value)
                optimizer.step()
                trace.append(np.concatenate([t.detach().numpy() for t in tensors]))
            traces.append(np.stack(trace))
        if max_norm or max_value:  # both sides of min(1, ...)
            assert 2 < clipped < 2 * steps * (2 if max_norm and max_value else 1) - 2, (name, clipped)
        values = {"initial": initial, "gradients": gradients, "trace": traces[0], "float_trace": traces[1]}
        settings = {"kind": kind, "numbers": numbers, "first": first, "l2": l2, "max_norm": max_norm, "max_value": max_value}
        golden.case("optimizers", name, values, **settings)


# name, decay
AVERAGES = [("the tutorial's, warmed up", 0.9999), ("a decay that the warm-up reaches", 0.5)]


def moving_average(golden):
    """By TensorFlow's rule in double: `trace` is the average after each step, `values` the parameters."""
    steps, size = 20, 5
    for index, (name, decay) in enumerate(AVERAGES):
        random = np.random.RandomState(950 + index)
        initial, values = floats(random, size), floats(random, steps, size)
        average, trace = initial.astype(np.float64), []
        for step in range(steps):
            n = step + 1
            average = average - (1 - min(decay, (1 + n) / (10 + n))) * (average - values[step])
            trace.append(average)
        golden.case("moving_average", name, {"initial": initial, "values": values, "trace": trace}, decay=decay)


def torch_rates(torch, initial, make, wanted):
    import warnings

    warnings.simplefilter("ignore")
    w = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([w], lr=initial)
    schedule = make(optimiser)
    rates = []
    for step in range(max(wanted) + 1):
        if step in wanted:
            rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return rates


def schedules(torch, golden):
    """The rate that holds during step steps[i] (steps count from 0, the rate at step 0 is the initial one). `kind` is one of
      exponential_staircase  numbers = initial, factor, steps a decay (the CIFAR-10 tutorial's)
      step                   numbers = initial, factor, steps a decay (PyTorch's StepLR)
      piecewise              numbers = boundary 1, ..., boundary n, rate 1, ..., rate n + 1; the new rate holds from the
                             boundary's own step on (PyTorch's MultiStepLR; TensorFlow's holds the old one for that step too)
      cosine                 numbers = initial, final, steps (PyTorch's CosineAnnealingLR)
      warm_up                numbers = initial, factor, steps (PyTorch's LinearLR from 1 / factor of factor times the initial)"""
    lr = torch.optim.lr_scheduler

    def add(name, kind, numbers, steps, rates):
        golden.case("schedules", name, {}, kind=kind, numbers=[float(n) for n in numbers], steps=steps, rates=rates)

    def add_by_torch(name, kind, numbers, steps, initial, make):
        add(name, kind, numbers, steps, torch_rates(torch, initial, make, steps))

    for replicas in (1, 2, 3, 4, 8):  # 350 epochs of 50,000 images in batches of 128 a replica
        decay = int(50000 / 128 / replicas * 350)
        steps = [0, 1, decay - 1, decay, decay + 1, 2 * decay - 1, 2 * decay, 3 * decay]
        rates = [0.1 * 0.1 ** (step // decay) for step in steps]
        if replicas >= 4:  # PyTorch walks step by step: the long ones would take minutes
            walked = torch_rates(torch, 0.1, lambda o: lr.StepLR(o, decay, 0.1), steps)
            assert np.allclose(walked, rates, rtol=1e-12), (walked, rates)
        add(f"tutorial, {replicas} replicas", "exponential_staircase", [0.1, 0.1, decay], steps, rates)
    add_by_torch("StepLR 30", "step", [0.5, 0.3, 30], range(0, 120, 3), 0.5, lambda o: lr.StepLR(o, 30, 0.3))
    steps, numbers = [0, 1, 9, 10, 11, 24, 25, 26, 39, 40, 41, 100], [10, 25, 40, 0.4, 0.2, 0.1, 0.05]
    add_by_torch("MultiStepLR", "piecewise", numbers, steps, 0.4, lambda o: lr.MultiStepLR(o, numbers[:3], 0.5))
    for name, initial, last, count in (("50", 0.1, 0.0, 50), ("37 to 0.01", 0.3, 0.01, 37)):
        make = lambda o: lr.CosineAnnealingLR(o, count, last)
        add_by_torch(f"CosineAnnealingLR {name}", "cosine", [initial, last, count], range(count + 1), initial, make)
    for factor in (2, 8):
        make = lambda o: lr.LinearLR(o, 1 / factor, total_iters=20)
        add_by_torch(f"LinearLR 20 to {factor} times", "warm_up", [0.1, factor, 20], range(25), 0.1 * factor, make)


def uniform(seed, size):
    """golden::uniform of golden.hpp"""
    mask = np.uint64(0xFFFFFFFF)
    bits = (np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B9) + np.uint64(seed * 0x85EBCA6B + 0x2545F491)) & mask
    bits = ((bits ^ (bits >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & mask
    bits = ((bits ^ (bits >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & mask
    bits = bits ^ (bits >> np.uint64(16))
    return ((bits >> np.uint64(8)).astype(np.int64) - (1 << 23)).astype(np.float32) / np.float32(1 << 23)


NETWORK = [  # name, shape in Cupola's layout, scale
    ("conv1/weights", (64, 5, 5, 3), 0.125),
    ("conv1/biases", (64,), 0.125),
    ("conv2/weights", (64, 5, 5, 64), 0.0625),
    ("conv2/biases", (64,), 0.125),
    ("local3/weights", (384, 2304), 0.0625),
    ("local3/biases", (384,), 0.125),
    ("local4/weights", (192, 384), 0.0625),
    ("local4/biases", (192,), 0.125),
    ("softmax_linear/weights", (10, 192), 0.125),
    ("softmax_linear/biases", (10,), 0.125),
]


def network_parameters(golden, group, layout, parameters):
    """Of each parameter its size, how `uniform` makes it, the norm of its gradient, and the gradient at places spread over it."""
    for seed, (name, shape, scale) in enumerate(layout, start=1):
        gradient = parameters[name].grad.numpy().reshape(-1)
        places = sorted(
            {
                int(np.argmax(np.abs(gradient))),
                *(int(p) for p in np.linspace(0, gradient.size - 1, min(16, gradient.size))),
            }
        )
        norm = np.linalg.norm(gradient)
        values = {"scale": scale, "gradient": gradient[places]}
        golden.case(group, name, values, size=gradient.size, seed=seed, gradient_norm=norm, places=places)


def network(torch, golden):
    """One step of the tutorial's network. Its million parameters and its images are not listed: both are `uniform`, scaled, with one
    seed a tensor."""
    functional = torch.nn.functional
    batch, image_seed, image_scale = 6, 99, 2.0
    labels = np.array([3, 0, 9, 1, 1, 7], dtype=np.int32)
    parameters = {}
    for seed, (name, shape, scale) in enumerate(NETWORK, start=1):
        values = (np.float32(scale) * uniform(seed, int(np.prod(shape)))).reshape(shape)
        parameters[name] = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    images = np.float32(image_scale) * uniform(image_seed, batch * 24 * 24 * 3).reshape(batch, 24, 24, 3)

    def convolution(x, name):
        return torch.relu(
            functional.conv2d(
                x, parameters[name + "/weights"].permute(0, 3, 1, 2), parameters[name + "/biases"], padding=2
            )
        )

    def pool(x):
        return functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=-math.inf), 3, 2)

    def norm(x):
        return functional.local_response_norm(x, 9, alpha=9 * float(np.float32(0.001 / 9)), beta=0.75, k=1.0)

    def dense(x, name):
        return functional.linear(x, parameters[name + "/weights"], parameters[name + "/biases"])

    x = torch.tensor(images, dtype=torch.float64).permute(0, 3, 1, 2)
    x = norm(pool(convolution(x, "conv1")))
    x = pool(norm(convolution(x, "conv2")))
    x = x.permute(0, 2, 3, 1).reshape(batch, -1)
    x = torch.relu(dense(x, "local3"))
    x = torch.relu(dense(x, "local4"))
    logits = dense(x, "softmax_linear")
    entropy = functional.cross_entropy(logits, torch.tensor(labels, dtype=torch.int64))
    decay3, decay4 = (0.5 * 0.004 * parameters[n + "/weights"].pow(2).sum() for n in ("local3", "local4"))
    total = entropy + decay3 + decay4
    total.backward()
    network_parameters(golden, "network_parameters", NETWORK, parameters)
    values = {"image_scale": image_scale, "logits": logits.detach()}
    numbers = {"cross_entropy": entropy, "local3_decay": decay3, "local4_decay": decay4, "total": total}
    numbers = {name: value.item() for name, value in numbers.items()}
    golden.case("network", "the tutorial's network, batch 6", values, image_seed=image_seed, labels=labels, **numbers)


# name, batch, height, width, channels, ReLU after it, epsilon, momentum
BATCH_NORMS = [
    ("5 x 7 x 3", 2, 5, 7, 3, False, 1e-5, 0.1),
    ("4 x 4 x 20, ReLU, the estimator's momentum", 3, 4, 4, 20, True, 1e-5, 0.003),
    ("1 x 1 x 5, a large epsilon", 6, 1, 1, 5, True, 1e-2, 0.5),
]


def batch_norm(torch, golden):
    """Training: the output, the gradients and the running statistics after the step; `evaluated` is the output that the ones before
    it give. PyTorch's momentum is what comes in, its running variance the unbiased one."""
    functional = torch.nn.functional
    random = np.random.default_rng(11)
    for name, n, height, width, channels, relu_after, epsilon, momentum in BATCH_NORMS:
        x, dy = floats(random, n, height, width, channels) + np.float32(0.5), floats(random, n, height, width, channels)
        weight, bias = floats(random, channels, scale=0.5) + np.float32(1), floats(random, channels, scale=0.5)
        before = [floats(random, channels), np.square(floats(random, channels)) + np.float32(0.1)]
        running = [torch.tensor(b, dtype=torch.float64) for b in before]

        def double(a):
            return torch.tensor(a, dtype=torch.float64)

        def output(x, training):
            y = functional.batch_norm(x.permute(0, 3, 1, 2), *running, w, b, training, momentum, epsilon)
            return (torch.relu(y) if relu_after else y).permute(0, 2, 3, 1)

        tx, w, b = (double(a).requires_grad_() for a in (x, weight, bias))
        evaluated = output(tx, False).detach().numpy()
        y = output(tx, True)
        y.backward(double(dy))
        values = with_parameters(x, weight, bias, y.detach(), dy, *(v.grad for v in (tx, w, b)))
        values |= {"mean_before": before[0], "variance_before": before[1], "evaluated": evaluated}
        values |= {"running_mean": running[0], "running_variance": running[1]}
        golden.case("batch_norm", name, values, relu=relu_after, epsilon=epsilon, momentum=momentum)


def resnet_layout(blocks, classes):
    """(name, shape in Cupola's layout, scale) of ResNet<6 blocks + 2>, in the order of its list."""

    def norm(name, channels):
        return [(name + ".weight", (channels,), 0.25), (name + ".bias", (channels,), 0.25)]

    layout = [("conv1.weight", (16, 3, 3, 3), 0.25), *norm("bn1", 16)]
    before = 16
    for stage, channels in ((1, 16), (2, 32), (3, 64)):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            layout += [(name + ".conv1.weight", (channels, 3, 3, before), 0.125), *norm(name + ".bn1", channels)]
            layout += [(name + ".conv2.weight", (channels, 3, 3, channels), 0.125), *norm(name + ".bn2", channels)]
            before = channels
    return [*layout, ("fc.weight", (classes, 64), 0.25), ("fc.bias", (classes,), 0.25)]


def resnet(torch, golden):
    """One step of ResNet<8>, and the logits that the running statistics give after it. Parameters and images are made as the
    tutorial's network's, with one more in a batch norm's weights. `buffers` are the mean and variance of each batch norm in the
    order of the list."""
    functional = torch.nn.functional
    blocks, classes, batch, image_seed, image_scale, momentum = 1, 11, 3, 99, 1.0, 0.003
    labels = np.array([3, 10, 0], dtype=np.int32)
    layout = resnet_layout(blocks, classes)
    parameters, running = {}, {}
    for seed, (name, shape, scale) in enumerate(layout, start=1):
        values = (np.float32(scale) * uniform(seed, int(np.prod(shape)))).reshape(shape)
        if "bn" in name and name.endswith("weight"):
            values = values + np.float32(1)
            running[name[: -len(".weight")]] = [torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)]
        parameters[name] = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    images = np.float32(image_scale) * uniform(image_seed, batch * 32 * 32 * 3).reshape(batch, 32, 32, 3)

    def convolution(x, name, stride=1):
        return functional.conv2d(x, parameters[name + ".weight"].permute(0, 3, 1, 2), stride=stride, padding=1)

    def norm(x, name, training):
        return functional.batch_norm(
            x, *running[name], parameters[name + ".weight"], parameters[name + ".bias"], training, momentum, 1e-5
        )

    def forward(training):
        x = torch.tensor(images, dtype=torch.float64).permute(0, 3, 1, 2)
        x = torch.relu(norm(convolution(x, "conv1"), "bn1", training))
        for stage, channels in ((1, 16), (2, 32), (3, 64)):
            for block in range(blocks):
                name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
                shortcut = x
                if x.shape[1] != channels:
                    more = (channels - x.shape[1]) // 2
                    shortcut = functional.pad(functional.avg_pool2d(x, stride, stride), (0, 0, 0, 0, more, more))
                x = torch.relu(norm(convolution(x, name + ".conv1", stride), name + ".bn1", training))
                x = norm(convolution(x, name + ".conv2"), name + ".bn2", training)
                x = torch.relu(x + shortcut)
        return functional.linear(x.mean((2, 3)), parameters["fc.weight"], parameters["fc.bias"])

    logits = forward(True)
    entropy = functional.cross_entropy(logits, torch.tensor(labels, dtype=torch.int64))
    entropy.backward()
    buffers = np.concatenate([t.numpy() for pair in running.values() for t in pair])
    network_parameters(golden, "resnet_parameters", layout, parameters)
    values = {"image_scale": image_scale, "logits": logits.detach(), "buffers": buffers, "evaluated": forward(False).detach()}
    numbers = {"image_seed": image_seed, "momentum": momentum, "cross_entropy": entropy.item()}
    golden.case("resnet", "ResNet<8>, batch 3", values, labels=labels, **numbers)


# The rules by which replicas agree. `moves` is what a replica adds to itself in a step, without the agreement.
REPLICA_RULES = ("local_sgd", "diloco", "easgd", "eamsgd", "asynchronous_easgd", "asynchronous_eamsgd", "downpour")
PERIODS, REPLICAS, RULE_STEPS = (1, 3, 16), (1, 2, 3, 4, 5), 100


def rule_gradient(at, replica, step):
    """Of curvature / 2 * (x - target)^2 in three coordinates. Each replica and step has its own targets, exact in float."""
    targets = np.array([(7 * replica + 13 * step + 5 * j) % 11 - 5 for j in range(3)]) / 16
    return np.array([0.25, 1.0, 1.75]) * (at - targets)


def replica_rule(rule, replicas, period):
    """The centre and the positions x of the replicas after each step, [RULE_STEPS, 3] and [RULE_STEPS, replicas, 3]."""
    rate, delta, moving_rate = 0.125, 0.875 if "eamsgd" in rule else 0.0, 0.9 / replicas
    centre = np.array([1.0, -2.0, 0.5])
    x, v, pending = np.tile(centre, (replicas, 1)), np.zeros((replicas, 3)), np.zeros((replicas, 3))
    buffer = np.zeros(3)
    centres, positions = [], []
    for step in range(RULE_STEPS):
        gradients = [rule_gradient(x[r] + delta * v[r], r, step) for r in range(replicas)]
        before, forces = centre, np.zeros(3)
        for r in range(replicas):
            v[r] = delta * v[r] - rate * gradients[r]
            if "easgd" in rule or "eamsgd" in rule:  # on steps that the period divides, with the x before the step
                # Synchronous: each replica sees the centre before the step. Otherwise: the one that the replica before it left.
                seen = centre if rule.startswith("asynchronous") else before
                force = moving_rate * (x[r] - seen) if step % period == 0 else np.zeros(3)
                x[r] = x[r] + v[r] - force
                if rule.startswith("asynchronous"):
                    centre = centre + force
                else:
                    forces = forces + force
                continue
            x[r] = x[r] + v[r]
            pending[r] = pending[r] + v[r]
            if rule == "downpour" and (step + 1) % period == 0:
                centre = centre + pending[r]
                pending[r], x[r] = 0, centre
        if rule in ("easgd", "eamsgd"):
            centre = before + forces
        if rule in ("local_sgd", "diloco") and (step + 1) % period == 0:
            outer_gradient = centre - sum(x) / replicas
            if rule == "local_sgd":
                centre = sum(x) / replicas
            else:
                buffer = 0.9 * buffer + outer_gradient
                centre = centre - 0.7 * (outer_gradient + 0.9 * buffer)
            x[:] = centre
        centres.append(centre)
        positions.append(x.copy())
    return np.array(centres), np.array(positions)


def replica_rules(golden):
    """The rules by which replicas with parameters of their own agree, on quadratics, in double: a case per rule. `centre` and
    `last_replica` are after the last step, [periods, numbers of replicas, 3]; `trace` is the centre after each step of
    `trace_replicas` replicas that agree every `trace_period` steps."""
    for rule in REPLICA_RULES:
        runs = [[replica_rule(rule, replicas, period) for replicas in REPLICAS] for period in PERIODS]
        trace, _ = replica_rule(rule, 4, 3)
        numbers = {"periods": np.array(PERIODS), "replicas": np.array(REPLICAS), "steps": RULE_STEPS}
        golden.case(
            "replica_rules",
            rule,
            {},
            centre=np.array([[centres[-1] for centres, _ in row] for row in runs]),
            last_replica=np.array([[positions[-1][-1] for _, positions in row] for row in runs]),
            trace=trace,
            trace_replicas=4,
            trace_period=3,
            **numbers,
        )


def generate_only(group):
    """For the group that generate() adds last, so that the file is the same."""
    golden = read(FILE)
    for table in (golden.tensors, golden.texts):
        for name in [name for name in table if name.split("/")[0] == group]:
            del table[name]
    globals()[group](golden)
    golden.write(FILE)


def generate():
    import torch

    torch.set_num_threads(1)  # one order of summation
    golden = Golden()
    for group in (conv2d, embedding, linear, local_response_norm, relu, cross_entropy, losses, sgd, optimizers, schedules):
        group(torch, golden)
    pool(torch, golden, "max")
    pool(torch, golden, "average")
    moving_average(golden)
    for group in (network, batch_norm, resnet):
        group(torch, golden)
    replica_rules(golden)
    golden.write(FILE)


# ------------------------------------------------------------------------------------------------------------ TensorFlow
def check_tensorflow():
    import tensorflow as tf

    stored = figures(FILE)
    worst = 0.0

    def compare(name, ours, theirs):
        nonlocal worst
        theirs = np.asarray(theirs, dtype=np.float64)
        error = np.linalg.norm(ours - theirs) / np.linalg.norm(ours)
        worst = max(worst, error)
        if not error < 1e-6:
            raise SystemExit(f"{name}: TensorFlow differs by {error:.3g}")

    def tensors(case, names):
        return [stored[f"{case}/{name}"] for name in names.split()]

    forward_and_backward = "input output output_gradient input_gradient"

    for index, (name, *_, kernel, stride, same) in enumerate(CONVOLUTIONS):
        x, y, dy, gx = tensors(f"conv2d/{index}", forward_and_backward)
        weights, biases, gw, gb = tensors(f"conv2d/{index}", "weights biases weight_gradient bias_gradient")
        tx, tw, tb = tf.Variable(x), tf.Variable(weights.transpose(1, 2, 3, 0)), tf.Variable(biases)
        with tf.GradientTape() as tape:
            output = tf.nn.conv2d(tx, tw, stride, "SAME" if same else "VALID") + tb
        rx, rw, rb = tape.gradient(output, (tx, tw, tb), dy)
        for ours, theirs in ((y, output), (gx, rx), (gw, rw.numpy().transpose(3, 0, 1, 2)), (gb, rb)):
            compare(name, ours, theirs)
    for kind, operation in (("max", tf.nn.max_pool2d), ("average", tf.nn.avg_pool2d)):
        cases = [case for case in POOLS if kind == "max" or not case[-1]]
        for index, (name, *_, kernel, stride, same, _ties) in enumerate(cases):
            x, y, dy, gx = tensors(f"{kind}_pool2d/{index}", forward_and_backward)
            tx = tf.Variable(x)
            with tf.GradientTape() as tape:
                output = operation(tx, kernel, stride, "SAME" if same else "VALID")
            compare(name, y, output)
            compare(name, gx, tape.gradient(output, tx, dy))
    for index, (name, *_, radius, bias, alpha, beta, _scale) in enumerate(NORMS):
        x, y, dy, gx = tensors(f"local_response_norm/{index}", forward_and_backward)
        tx = tf.Variable(x.astype(np.float32))  # TensorFlow has no LRN in double
        with tf.GradientTape() as tape:
            output = tf.nn.local_response_normalization(tx, radius, bias, alpha, beta)
        compare(name, y, output)
        compare(name, gx, tape.gradient(output, tx, tf.constant(dy, tf.float32)))
    for index, (name, kind, numbers, l2, *_) in enumerate(OPTIMIZERS):
        if kind != "rmsprop":
            continue
        initial, gradients, trace = tensors(f"optimizers/{index}", "initial gradients trace")
        rate, share, momentum, epsilon, _, start = numbers
        w = tf.Variable(initial)
        if start == 1:
            optimizer = tf.compat.v1.train.RMSPropOptimizer(rate, share, momentum, epsilon)
        else:
            optimizer = tf.keras.optimizers.RMSprop(rate, share, momentum, epsilon)
        for step, gradient in enumerate(gradients):
            regularised = gradient + np.where(np.arange(w.shape[0]) < 12, l2, 0.0) * w.numpy()
            optimizer.apply_gradients([(tf.constant(regularised), w)])
            compare(name, trace[step], w)
    for index, (name, decay) in enumerate(AVERAGES):
        initial, values, trace = tensors(f"moving_average/{index}", "initial values trace")
        w, step = tf.Variable(initial), tf.Variable(0, dtype=tf.int64)
        average = tf.train.ExponentialMovingAverage(decay, step)
        average.apply([w])
        average.average(w).assign(initial)
        for value, expected in zip(values, trace):
            w.assign(value)
            step.assign_add(1)
            average.apply([w])
            compare(name, expected, average.average(w))
    print(f"TensorFlow {tf.__version__} agrees with every figure to {worst:.1e}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--check-tensorflow"]:
        check_tensorflow()
    elif len(sys.argv) == 3 and sys.argv[1] == "--only" and sys.argv[2] == "replica_rules":
        generate_only(sys.argv[2])
    elif not sys.argv[1:]:
        generate()
    else:
        sys.exit(__doc__)
