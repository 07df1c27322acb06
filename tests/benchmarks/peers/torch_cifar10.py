# SPDX-License-Identifier: Apache-2.0
"""The tutorial's training step in PyTorch: eager, channels last (measured faster than NCHW and than torch.compile here).

PyTorch divides LRN's alpha by the window, so the tutorial's 0.001/9 for each element is 0.001 to it. A pool with ceil_mode is
TensorFlow's SAME for these even sizes, without a copy for the padding.
"""

import sys

import numpy as np
import torch
from torch import nn

import protocol

threads, batch = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
random = np.random.RandomState(1)


class Flatten(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)


def norm():
    return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)


def pool():
    return nn.MaxPool2d(3, 2, ceil_mode=True)


net = nn.Sequential(
    nn.Conv2d(3, 64, 5, padding=2),
    nn.ReLU(),
    pool(),
    norm(),
    nn.Conv2d(64, 64, 5, padding=2),
    nn.ReLU(),
    norm(),
    pool(),
    Flatten(),
    nn.Linear(2304, 384),
    nn.ReLU(),
    nn.Linear(384, 192),
    nn.ReLU(),
    nn.Linear(192, 10),
).to(memory_format=torch.channels_last)
for index, deviation, bias in ((0, 0.05, 0.0), (4, 0.05, 0.1), (9, 0.04, 0.1), (11, 0.04, 0.1), (13, 1 / 192, 0.0)):
    nn.init.trunc_normal_(net[index].weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    nn.init.constant_(net[index].bias, bias)
optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
batches = [
    (
        torch.tensor(random.standard_normal((batch, 3, 24, 24)).astype(np.float32)).contiguous(
            memory_format=torch.channels_last
        ),
        torch.tensor(random.randint(0, 10, batch)),
    )
    for _ in range(4)
]


def step(i):
    images, labels = batches[i % len(batches)]
    optimiser.zero_grad(set_to_none=True)
    decay = 0.002 * (net[9].weight.square().sum() + net[11].weight.square().sum())
    loss = nn.functional.cross_entropy(net(images), labels) + decay
    loss.backward()
    optimiser.step()
    return loss.item()


protocol.serve({"name": "PyTorch", "version": torch.__version__, "how": "eager, channels_last"}, step)
