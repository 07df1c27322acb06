# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel with Gloo: two processes on this machine, one thread each.

    [LAYOUT=channels_last|contiguous] [COMPILE=1] torch_ddp.py step PRECISION BATCH
    torch_ddp.py allreduce ELEMENTS

A step is one of the tutorial's network with a batch of BATCH on each process; allreduce is Gloo's sum of ELEMENTS floats, in place.
"""

import contextlib
import os
import socket
import subprocess
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import protocol
from torch_networks import SHAPES, network_of

PROCESSES = 2
rank = int(os.environ.get("RANK", "0"))
other = None
if rank == 0:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(PROCESSES), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    other = subprocess.Popen([sys.executable, *sys.argv], stdin=subprocess.PIPE, env={**os.environ, "RANK": "1"}, stdout=subprocess.DEVNULL)
torch.set_num_threads(1)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")


def work_of_step(precision, batch):
    layout = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}[os.environ.get("LAYOUT", "channels_last")]
    net, decay, optimiser = network_of("lrn")
    net = nn.parallel.DistributedDataParallel(net.to(memory_format=layout), gradient_as_bucket_view=True)
    module = torch.compile(net) if os.environ.get("COMPILE") else net
    random = np.random.RandomState(1 + rank)
    shape = (batch, *SHAPES["lrn"])
    samples = [torch.tensor(random.standard_normal(shape).astype(np.float32)).contiguous(memory_format=layout) for _ in range(4)]
    batches = [(images, torch.tensor(random.randint(0, 10, batch))) for images in samples]
    autocast = torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()

    def step(i):
        images, labels = batches[i % len(batches)]
        optimiser.zero_grad(set_to_none=True)
        with autocast:
            logits = module(images)
        loss = nn.functional.cross_entropy(logits.float(), labels) + decay()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step, f"DDP with Gloo, 2 x {batch} samples, 1 thread each, {precision}"


def work_of_allreduce(elements):
    values = torch.ones(elements)

    def all_reduce(_):
        dist.all_reduce(values)
        values.fill_(1.0)
        return 0.0

    return all_reduce, f"Gloo, {elements} floats"


work, how = work_of_step(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "step" else work_of_allreduce(int(sys.argv[2]))
warm_up = int(os.environ.get("WARM_UP", "5"))
if rank == 0:

    class Lines:
        """The lines of standard input; each is also sent to the other process."""

        def __iter__(self):
            for line in sys.__stdin__:
                other.stdin.write(line.encode())
                other.stdin.flush()
                yield line

    sys.stdin = Lines()
    protocol.serve({"name": "PyTorch", "version": torch.__version__, "how": how}, work)
    other.stdin.close()
    other.wait(timeout=60)
else:
    done = 0
    for _ in range(warm_up):
        work(done)
        done += 1
    for line in sys.stdin:
        for _ in range(int(line)):
            work(done)
            done += 1
