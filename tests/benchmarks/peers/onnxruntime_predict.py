# SPDX-License-Identifier: Apache-2.0
"""Predictions of a trained network in ONNX Runtime, for inference.py and vision.py.

    onnxruntime_predict.py NETWORK BATCH THREADS WEIGHTS.safetensors SAMPLES OUTPUTS     speaks protocol.py
    onnxruntime_predict.py MODEL.onnx BATCH THREADS SAMPLES OUTPUTS                      the same of a file
    onnxruntime_predict.py make NETWORK BATCH WEIGHTS.safetensors SAMPLES                writes weights and samples, random ones

NETWORK is lrn or resnet44. The ONNX model is built from the same file of weights that Cupola reads, in ONNX's own layout, NCHW, and
its samples are in that layout before the timing. The session uses all graph optimisations.
"""

import json
import struct
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import protocol

INPUTS = {"lrn": (3, 24, 24), "resnet44": (3, 32, 32)}
CLASSES = {"lrn": 10, "resnet44": 11}


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = np.ascontiguousarray(tensor, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Graph:
    """A list of nodes; each method takes the name of a value and returns the name of its result."""

    def __init__(self, tensors):
        self.tensors, self.nodes, self.constants, self.used = tensors, [], [], set()

    def add(self, kind, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def tensor(self, name):
        if name not in self.used:
            self.used.add(name)
            self.constants.append(numpy_helper.from_array(self.tensors[name], name))
        return name

    def convolution(self, x, name, stride=1, bias=True):
        size = self.tensors[name + ".weight"].shape[2]
        parts = ["weight", "bias"] if bias else ["weight"]
        return self.add("Conv", [x, *(self.tensor(f"{name}.{p}") for p in parts)], kernel_shape=[size, size],
                        strides=[stride, stride], pads=[size // 2] * 4)  # fmt: skip

    def norm(self, x, name):
        parts = ("weight", "bias", "running_mean", "running_var")
        return self.add("BatchNormalization", [x, *(self.tensor(f"{name}.{p}") for p in parts)], epsilon=1e-5)

    def linear(self, x, name):
        return self.add("Gemm", [x, self.tensor(name + ".weight"), self.tensor(name + ".bias")], transB=1)

    def relu(self, x):
        return self.add("Relu", [x])


def tutorial(g, x):
    def pool(x):  # TensorFlow's SAME for these even sizes
        return g.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])

    def norm(x):  # ONNX divides alpha by the size
        return g.add("LRN", [x], size=9, alpha=0.001, beta=0.75, bias=1.0)

    x = norm(pool(g.relu(g.convolution(x, "conv1"))))
    x = pool(norm(g.relu(g.convolution(x, "conv2"))))
    x = g.add("Flatten", [x])
    return g.linear(g.relu(g.linear(g.relu(g.linear(x, "local3")), "local4")), "softmax_linear")


def resnet44(g, x):
    zeros = {}
    x = g.relu(g.norm(g.convolution(x, "conv1", bias=False), "bn1"))
    for stage in (1, 2, 3):
        for block in range(7):
            name, shortcut, stride = f"layer{stage}.{block}", x, 1
            if block == 0 and stage > 1:
                stride, margin = 2, 8 << (stage - 2)  # option A: an average, and channels of zeros on both sides
                shortcut = g.add("AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])
                if margin not in zeros:
                    zeros[margin] = f"pads{margin}"
                    g.constants.append(numpy_helper.from_array(np.array([0, margin, 0, 0] * 2, np.int64), zeros[margin]))
                shortcut = g.add("Pad", [shortcut, zeros[margin]])
            y = g.relu(g.norm(g.convolution(x, name + ".conv1", stride, bias=False), name + ".bn1"))
            y = g.norm(g.convolution(y, name + ".conv2", bias=False), name + ".bn2")
            x = g.relu(g.add("Add", [y, shortcut]))
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x])])
    return g.linear(x, "fc")


NETWORKS = {"lrn": tutorial, "resnet44": resnet44}


def random_weights(network):
    """Random weights with which activations neither grow nor vanish and every layer has an effect."""
    random = np.random.RandomState(1)
    tensors = {}

    def layer(name, *shape, bias=True):
        tensors[name + ".weight"] = random.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
        if bias:
            tensors[name + ".bias"] = random.standard_normal(shape[0]) * 0.1

    def norm(name, channels):
        tensors[name + ".weight"] = random.uniform(0.5, 1.0, channels)
        tensors[name + ".bias"] = random.standard_normal(channels) * 0.1
        tensors[name + ".running_mean"] = random.standard_normal(channels) * 0.1
        tensors[name + ".running_var"] = random.uniform(0.5, 2.0, channels)

    if network == "lrn":
        layer("conv1", 64, 3, 5, 5)
        layer("conv2", 64, 64, 5, 5)
        layer("local3", 384, 2304)
        layer("local4", 192, 384)
        layer("softmax_linear", 10, 192)
        return tensors
    layer("conv1", 16, 3, 3, 3, bias=False)
    norm("bn1", 16)
    channels = 16
    for stage in (1, 2, 3):
        for block in range(7):
            name, out = f"layer{stage}.{block}", 8 << stage
            layer(name + ".conv1", out, channels, 3, 3, bias=False)
            norm(name + ".bn1", out)
            layer(name + ".conv2", out, out, 3, 3, bias=False)
            norm(name + ".bn2", out)
            channels = out
    layer("fc", 11, 64)
    return tensors


def serve(model, batch, threads, samples, outputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    channels, height, width = entry.shape[1:]
    x = np.fromfile(samples, np.float32, int(batch) * height * width * channels).reshape(int(batch), height, width, channels)
    feed = {entry.name: np.ascontiguousarray(x.transpose(0, 3, 1, 2))}
    session.run(None, feed)[0].tofile(outputs)

    def predict(_):
        session.run(None, feed)
        return 0.0

    protocol.serve({"name": "ONNX Runtime", "version": onnxruntime.__version__, "how": "CPU provider, all optimisations"}, predict)


def main():
    if sys.argv[1] == "make":
        _, _, network, batch, weights, samples = sys.argv
        write_safetensors(weights, random_weights(network))
        channels, height, width = INPUTS[network]
        np.random.RandomState(2).standard_normal((int(batch), height, width, channels)).astype(np.float32).tofile(samples)
        return
    if sys.argv[1].endswith(".onnx"):
        with open(sys.argv[1], "rb") as file:
            serve(file.read(), *sys.argv[2:])
        return
    _, network, batch, threads, weights, samples, outputs = sys.argv
    batch, (channels, height, width) = int(batch), INPUTS[network]
    graph = Graph(read_safetensors(weights))
    result = NETWORKS[network](graph, "samples")
    shape, logits = [batch, channels, height, width], [batch, CLASSES[network]]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            network,
            [helper.make_tensor_value_info("samples", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, logits)],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    serve(model.SerializeToString(), batch, threads, samples, outputs)


main()
