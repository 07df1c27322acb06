# SPDX-License-Identifier: Apache-2.0
"""The networks of ../vision.cpp in PyTorch.

    [LAYOUT=contiguous] [COMPILE=1] torch_vision.py NETWORK step BATCH THREADS      training steps, as protocol.py describes
    torch_vision.py NETWORK make BATCH WEIGHTS.safetensors SAMPLES                  writes weights and samples, random ones

NETWORK is resnet50 or mobilenet_v2 and, for steps, unet or resnet50-frozen, whose body has no gradients and normalises by its running statistics.
"""

import os
import sys

import numpy as np
import torch
import torchvision
from torch import nn

import protocol


def double(before, after):
    layers = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """TransposedUNet<128, 128, 3, 2, 32>."""

    def __init__(self, base=32, depth=4, classes=2):
        super().__init__()
        channels = [base << i for i in range(depth + 1)]
        self.down = nn.ModuleList(double(before, after) for before, after in zip([3, *channels], channels))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in reversed(channels[:-1]))
        self.join = nn.ModuleList(double(2 * c, c) for c in reversed(channels[:-1]))
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        kept = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


def network_of(name):
    return UNet() if name == "unet" else getattr(torchvision.models, name.removesuffix("-frozen"))(weights=None)


def make(name, batch, weights, samples):
    from safetensors.torch import save_file

    net = network_of(name)
    generator = torch.Generator().manual_seed(1)
    # Statistics with which every norm has an effect, and activations neither grow nor vanish.
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            nn.init.uniform_(module.weight, 0.5, 1)
    save_file({key: value.contiguous() for key, value in net.state_dict().items() if not key.endswith("num_batches_tracked")}, weights)
    np.random.RandomState(2).standard_normal((batch, 224, 224, 3)).astype(np.float32).tofile(samples)


def serve_steps(name, batch, threads):
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    layout = torch.contiguous_format if os.environ.get("LAYOUT") == "contiguous" else torch.channels_last
    net = network_of(name).to(memory_format=layout).train()
    if name.endswith("-frozen"):
        net.requires_grad_(False).eval()
        net.fc.requires_grad_(True)
    run = torch.compile(net) if os.environ.get("COMPILE") else net
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01, momentum=0.9, fused=True)
    random = np.random.RandomState(1)
    side = 128 if name == "unet" else 224
    batches = []
    for _ in range(4):
        images = torch.tensor(random.standard_normal((batch, 3, side, side)).astype(np.float32)).contiguous(memory_format=layout)
        batches.append((images, torch.tensor(random.randint(0, 2, (batch, side, side) if name == "unet" else batch))))

    def step(i):
        images, labels = batches[i % len(batches)]
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(run(images), labels)
        loss.backward()
        optimiser.step()
        return loss.item()

    protocol.serve({"name": "PyTorch", "version": torch.__version__, "how": "float"}, step)


torch.manual_seed(1)
if sys.argv[2] == "make":
    make(sys.argv[1], int(sys.argv[3]), *sys.argv[4:6])
else:
    serve_steps(sys.argv[1], int(sys.argv[3]), int(sys.argv[4]))
