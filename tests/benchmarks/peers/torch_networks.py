# SPDX-License-Identifier: Apache-2.0
"""The networks of the benchmarks in PyTorch, as (module, function of the part of the loss that is not of the data).

PyTorch divides LRN's alpha by the window, so the tutorial's 0.001/9 per element is 0.001 here. A pool with ceil_mode is
TensorFlow's SAME for these even sizes, without a copy for the padding.
"""

import torch
from torch import nn

SHAPES = {"lrn": (3, 24, 24), "plain": (3, 24, 24), "resnet44": (3, 32, 32), "mlp": (784,)}


class Flatten(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


def norm(with_lrn):
    return [nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)] if with_lrn else []


def pool():
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def tutorial(with_lrn):
    net = nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2),
        nn.ReLU(),
        pool(),
        *norm(with_lrn),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.ReLU(),
        *norm(with_lrn),
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


def network_of(name):
    """(module, decay, optimiser) of the network `name`, a key of SHAPES."""
    net, decay = {"lrn": lambda: tutorial(True), "plain": lambda: tutorial(False), "resnet44": resnet44, "mlp": mlp}[name]()
    if name == "resnet44":  # the optimiser decays all parameters, which takes less time than a part of the loss
        return net, decay, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-4, fused=True)
    return net, decay, torch.optim.SGD(net.parameters(), lr=0.01, fused=True)
