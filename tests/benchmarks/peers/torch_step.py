# SPDX-License-Identifier: Apache-2.0
"""A training step in PyTorch: eager, channels last (measured faster than NCHW and than torch.compile for these networks).

    [TORCH_ONEDNN=0] torch_step.py NETWORK PRECISION BATCH THREADS

NETWORK is lrn (the tutorial's), plain (the same without LRN), resnet44 or mlp; PRECISION is float or bfloat16.

PyTorch divides LRN's alpha by the window, so the tutorial's 0.001/9 per element is 0.001 here. A pool with ceil_mode is
TensorFlow's SAME for these even sizes, without a copy for the padding.
"""

import contextlib
import os
import sys

import numpy as np
import torch
from torch import nn

import protocol

network, precision, batch, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
torch.backends.mkldnn.set_flags(os.environ.get("TORCH_ONEDNN", "1") != "0")
random = np.random.RandomState(1)


class Flatten(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


def norm():
    return [nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)] if network == "lrn" else []


def pool():
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def tutorial():
    net = nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2),
        nn.ReLU(),
        pool(),
        *norm(),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.ReLU(),
        *norm(),
        pool(),
        Flatten(),
        nn.Linear(2304, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, 10),
    )
    layers = [layer for layer in net if isinstance(layer, (nn.Conv2d, nn.Linear))]
    for layer, deviation, bias in zip(layers, (0.05, 0.05, 0.04, 0.04, 1 / 192), (0.0, 0.1, 0.1, 0.1, 0.0)):
        nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        nn.init.constant_(layer.bias, bias)
    local3, local4 = layers[2].weight, layers[3].weight
    return net, lambda: 0.002 * (local3.square().sum() + local4.square().sum())


class Block(nn.Module):
    """A basic block with option A's shortcut: an average, and channels of zeros on both sides."""

    def __init__(self, before, after):
        super().__init__()
        self.stride, self.margin = after // before, (after - before) // 2
        self.conv1 = nn.Conv2d(before, after, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after, momentum=0.003)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after, momentum=0.003)
        self.relu1, self.relu2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        if self.margin:
            x = nn.functional.pad(nn.functional.avg_pool2d(x, 2), (0, 0, 0, 0, self.margin, self.margin))
        return self.relu2(y + x)


def resnet44():
    blocks, channels = [], 16
    for stage in range(3):
        for _ in range(7):
            blocks.append(Block(channels, 16 << stage))
            channels = 16 << stage
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16, momentum=0.003),
        nn.ReLU(inplace=True),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 11),
    )
    return net, lambda: 0.0


def mlp():
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), lambda: 0.0


SHAPES = {"lrn": (3, 24, 24), "plain": (3, 24, 24), "resnet44": (3, 32, 32), "mlp": (784,)}
net, decay = {"lrn": tutorial, "plain": tutorial, "resnet44": resnet44, "mlp": mlp}[network]()
if network == "resnet44":  # the optimiser decays all parameters, which takes less time than a part of the loss
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-4, fused=True)
else:
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, fused=True)


def samples():
    values = torch.tensor(random.standard_normal((batch, *SHAPES[network])).astype(np.float32))
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values


if network != "mlp":
    net = net.to(memory_format=torch.channels_last)
batches = [(samples(), torch.tensor(random.randint(0, 10, batch))) for _ in range(4)]
autocast = torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()


def step(i):
    images, labels = batches[i % len(batches)]
    optimiser.zero_grad(set_to_none=True)
    with autocast:
        logits = net(images)
    loss = nn.functional.cross_entropy(logits.float(), labels) + decay()
    loss.backward()
    optimiser.step()
    return loss.item()


how = "eager" if network == "mlp" else "eager, channels_last"
protocol.serve({"name": "PyTorch", "version": torch.__version__, "how": how + (", autocast" if precision == "bfloat16" else "")}, step)
