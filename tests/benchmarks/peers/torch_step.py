# SPDX-License-Identifier: Apache-2.0
"""A training step in PyTorch: eager, channels last (measured faster than NCHW and than torch.compile for these networks).

    [TORCH_ONEDNN=0] torch_step.py NETWORK PRECISION BATCH THREADS

NETWORK is lrn (the tutorial's), plain (the same without LRN), resnet44 or mlp; PRECISION is float or bfloat16.
"""

import contextlib
import os
import sys

import numpy as np
import torch
from torch import nn

import protocol
from torch_networks import SHAPES, network_of

network, precision, batch, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
torch.backends.mkldnn.set_flags(os.environ.get("TORCH_ONEDNN", "1") != "0")
random = np.random.RandomState(1)
net, decay, optimiser = network_of(network)


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
