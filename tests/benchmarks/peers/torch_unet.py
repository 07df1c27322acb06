# SPDX-License-Identifier: Apache-2.0
"""The U-Net of ../unet.cpp in PyTorch.

    [LAYOUT=contiguous] [COMPILE=1] torch_unet.py BATCH THREADS        training steps, as protocol.py describes
    torch_unet.py train STEPS BATCH THREADS                            the losses of a training
"""

import json
import os
import sys

import torch
from torch import nn

import protocol
import shapes

train = sys.argv[1] == "train"
steps, batch, threads = map(int, sys.argv[2:5]) if train else (0, *map(int, sys.argv[1:3]))
layout = torch.contiguous_format if os.environ.get("LAYOUT") == "contiguous" else torch.channels_last
torch.set_num_threads(threads)
torch.set_num_interop_threads(1)
torch.manual_seed(1)


def convolution(before, after, kernel=3):
    layer = nn.Conv2d(before, after, kernel, padding=kernel // 2)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


def twice(before, after):
    return nn.Sequential(convolution(before, after), nn.ReLU(inplace=True), convolution(after, after), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, base=16, depth=3):
        super().__init__()
        channels = [base << i for i in range(depth)]
        self.down = nn.ModuleList(twice(before, after) for before, after in zip([1, *channels], channels))
        self.bottom = twice(channels[-1], 2 * channels[-1])
        self.up = nn.ModuleList(twice(3 * c, c) for c in reversed(channels))
        self.head = convolution(base, shapes.CLASSES, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up in self.up:
            x = up(torch.cat([nn.functional.interpolate(x, scale_factor=2, mode="nearest"), skips.pop()], 1))
        return self.head(x)


net = UNet().to(memory_format=layout)
run = torch.compile(net) if os.environ.get("COMPILE") else net
optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)


def tensors(first):
    images, labels = shapes.batch(first, batch)
    return torch.tensor(images).contiguous(memory_format=layout), torch.tensor(labels)


def step_on(images, labels):
    optimiser.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(run(images), labels)
    loss.backward()
    optimiser.step()
    return loss.item()


if train:
    losses = [step_on(*tensors(i * batch)) for i in range(steps)]
    with torch.no_grad():
        others = [nn.functional.cross_entropy(net(images), labels).item() for images, labels in (tensors(1_000_000 + i) for i in range(0, 256, batch))]
    print(json.dumps({"losses": losses, "held_out": sum(others) / len(others)}))
else:
    batches = [tensors(i * batch) for i in range(4)]
    protocol.serve({"name": "PyTorch", "version": torch.__version__, "how": "float"}, lambda i: step_on(*batches[i % len(batches)]))
