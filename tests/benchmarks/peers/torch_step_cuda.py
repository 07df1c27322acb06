# SPDX-License-Identifier: Apache-2.0
"""The tutorial network's training step in PyTorch on a GPU: compiled, and compiled and captured as a CUDA graph.

    torch_step_cuda.py PRECISION BATCH[,BATCH...] SECONDS [DEVICE]

PRECISION is float, tf32 or bfloat16 (autocast). The program is ready when everything is compiled; after SECONDS, and with one program
per BATCH, no other implementation of LRN is tried. The programs of protocol.serve_queued are "BATCH compiled" and "BATCH captured".

LRN has several implementations, and each program uses the fastest: PyTorch's own (a three-dimensional average pool), a sum of shifted
slices, and a 1 x 1 convolution with a band of ones. Batches are on the device; a captured step copies a batch to its own first. Channels
are last, cuDNN tries its algorithms, the optimiser is the fused one, and a step waits for nothing. PyTorch divides LRN's alpha by the
window, so the tutorial's 0.001/9 per element is 0.001 here.
"""

import contextlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WINDOW, ALPHA, BETA = 9, 0.001, 0.75
TUTORIAL_BIASES, TUTORIAL_DEVIATIONS = (0.0, 0.1, 0.1, 0.1, 0.0), (0.05, 0.05, 0.04, 0.04, 1 / 192)


class OwnNorm(nn.Module):
    def forward(self, x):
        return F.local_response_norm(x, WINDOW, ALPHA, BETA, 1.0)


class SlicesNorm(nn.Module):
    def forward(self, x):
        squares = F.pad(x.float().square(), (0, 0, 0, 0, WINDOW // 2, WINDOW // 2))
        total = sum(squares[:, i : i + x.shape[1]] for i in range(WINDOW))
        return (x / (1.0 + ALPHA / WINDOW * total) ** BETA).to(x.dtype)


class BandNorm(nn.Module):
    def __init__(self):
        super().__init__()
        places = torch.arange(64)
        band = ((places[:, None] - places[None, :]).abs() <= WINDOW // 2).float()
        self.register_buffer("band", band.reshape(64, 64, 1, 1), persistent=False)

    def forward(self, x):
        return (x / (1.0 + ALPHA / WINDOW * F.conv2d(x.square(), self.band.to(x.dtype)).float()) ** BETA).to(x.dtype)


NORMS = {"slices": SlicesNorm, "local_response_norm": OwnNorm, "convolution": BandNorm}


class Tutorial(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
        self.norm1, self.norm2 = norm(), norm()
        self.local3, self.local4, self.logits = nn.Linear(2304, 384), nn.Linear(384, 192), nn.Linear(192, 10)
        layers = (self.conv1, self.conv2, self.local3, self.local4, self.logits)
        for layer, deviation, bias in zip(layers, TUTORIAL_DEVIATIONS, TUTORIAL_BIASES):
            nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            nn.init.constant_(layer.bias, bias)

    def forward(self, x):
        def pool(values):  # ceil_mode gives TensorFlow's SAME for these even sizes, without a copy for the padding
            return F.max_pool2d(values, 3, 2, ceil_mode=True)

        x = self.norm1(pool(F.relu(self.conv1(x))))
        x = pool(self.norm2(F.relu(self.conv2(x))))
        x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)
        return self.logits(F.relu(self.local4(F.relu(self.local3(x)))))


class Training:
    """A network and its optimiser; `queue(i)` queues a step with batch i of those on the device."""

    def __init__(self, norm, precision, batches, device):
        torch.manual_seed(1)
        self.net = Tutorial(norm).to(device, memory_format=torch.channels_last)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=0.01, fused=True)
        self.batches, self.device = batches, device
        net = self.net
        autocast = torch.autocast(device, dtype=torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()

        def loss_of(images, labels):
            with autocast:
                logits = net(images)
            decay = net.local3.weight.square().sum() + net.local4.weight.square().sum()
            return F.cross_entropy(logits.float(), labels) + 0.002 * decay

        self.loss_of = torch.compile(loss_of, dynamic=False, fullgraph=True)
        self.loss = None

    def step(self, images, labels):
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss_of(images, labels)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def queue(self, i):
        self.loss = self.step(*self.batches[i % len(self.batches)])

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()
        return float("nan") if self.loss is None else self.loss.item()


class Captured(Training):
    """The whole step of another program as a CUDA graph, with a batch of its own to which each batch is copied first."""

    def __init__(self, training):
        self.net, self.optimiser, self.loss_of = training.net, training.optimiser, training.loss_of
        self.batches, self.device, self.loss = training.batches, training.device, None
        images, labels = training.batches[0]
        self.images, self.labels = images.clone(memory_format=torch.preserve_format), labels.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(self.images, self.labels)
        torch.cuda.current_stream().wait_stream(side)
        self.optimiser.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.captured_loss = self.step(self.images, self.labels)

    def queue(self, i):
        images, labels = self.batches[i % len(self.batches)]
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self.graph.replay()
        self.loss = self.captured_loss


def make_batches(batch, device):
    generator = torch.Generator().manual_seed(batch)
    return [
        (
            torch.randn(batch, 3, 24, 24, generator=generator).to(device).contiguous(memory_format=torch.channels_last),
            torch.randint(0, 10, (batch,), generator=generator).to(device),
        )
        for _ in range(4)
    ]


def step_seconds(training, steps):
    for i in range(5):
        training.queue(i)
    training.wait()
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for i in range(steps):
            training.queue(i)
        training.wait()
        best = min(best, (time.perf_counter() - start) / steps)
    return best


def prepare(precision, sizes, seconds, device):
    """The fastest program of each kind and batch size, and a description of all that were tried."""
    begin, longest = time.monotonic(), 0.0
    programs, described, why = {}, {}, {}
    batches = {size: make_batches(size, device) for size in sizes}
    for name, norm in NORMS.items():
        for size in sizes:
            begun = time.monotonic()
            if f"{size} compiled" in programs and begun - begin + longest > seconds:
                why[f"{size} {name}"] = "no time was left for it"
                continue
            try:
                training = Training(norm, precision, batches[size], device)
                kinds = {"compiled": training}
                took = {"compiled": step_seconds(training, 30)}
                if device == "cuda":
                    kinds["captured"] = Captured(training)
                    took["captured"] = step_seconds(kinds["captured"], 30)
            except Exception as error:  # an implementation that PyTorch cannot compile must not end the others
                why[f"{size} {name}"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
                continue
            longest = max(longest, time.monotonic() - begun)
            for kind, program in kinds.items():
                tried = described.setdefault(f"{size} {kind}", {"tried": {}})["tried"]
                tried[name] = took[kind]
                if took[kind] == min(tried.values()):
                    described[f"{size} {kind}"]["lrn"] = name
                    programs[f"{size} {kind}"] = (program.queue, program.wait)
    return programs, described, why


def main():
    precision, sizes, seconds = sys.argv[1], [int(size) for size in sys.argv[2].split(",")], float(sys.argv[3])
    device = sys.argv[4] if len(sys.argv) > 4 else "cuda"
    if precision not in ("float", "tf32", "bfloat16"):
        raise SystemExit(f"PRECISION must be float, tf32 or bfloat16, not {precision}")
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    # One function is compiled separately for each batch size and norm.
    torch._dynamo.config.cache_size_limit = 64
    programs, described, why = prepare(precision, sizes, seconds, device)
    if not programs:
        raise SystemExit(f"the program could not be compiled: {why}")
    import protocol

    protocol.serve_queued(
        {
            "name": "PyTorch",
            "version": torch.__version__,
            "how": f"{precision}, channels_last, fused SGD",
            "tf32": precision == "tf32",
            "programs": described,
            "left_out": why,
        },
        programs,
    )


if __name__ == "__main__":
    main()
