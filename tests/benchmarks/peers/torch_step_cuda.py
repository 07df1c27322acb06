# SPDX-License-Identifier: Apache-2.0
"""The training step of the tutorial's network in PyTorch on a GPU, in its different modes.

    torch_step_cuda.py PRECISION BATCH[,BATCH...] SECONDS [--compile-only] [--device DEVICE]

PRECISION is float, tf32-convolutions (PyTorch's defaults: TF32 in convolutions, not in products), tf32 (in both), bfloat16 (autocast) or
half (autocast, with a GradScaler); the switches of TF32 are set and printed. The modes of a step:

    eager        queued operation by operation
    compiled     by torch.compile
    captured     by torch.compile, and the whole step with the optimiser as one CUDA graph
    autotuned    the same with mode max-autotune
    augmented    captured, with batches that the GPU makes of 50,000 images, with the tutorial's augmentation

The program is ready when all are made that can be made in SECONDS; the first of each mode are made first. With --compile-only it then
ends, so that its caches are filled. The programs of protocol.serve_queued are "BATCH MODE LRN".

LRN has several implementations: PyTorch's own (a three-dimensional average pool), a sum of shifted slices, and a 1 x 1 convolution with a
band of ones; who measures takes the fastest. Batches are on the device; a captured step copies a batch to its own first. Channels are
last, cuDNN tries its algorithms, the optimiser is the fused one, and a step waits for nothing. PyTorch divides LRN's alpha by the window,
so the tutorial's 0.001/9 per element is 0.001 here.
"""

import argparse
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


IMAGES, SIDE, CROP = 50_000, 32, 24


def augment(images, batch):
    """The tutorial's distortion of `batch` random images: a crop, a flip, brightness, contrast, and a mean of 0 and deviation of 1."""
    device = images.device
    chosen = torch.randint(0, images.shape[0], (batch, 1, 1), device=device)
    corner = torch.randint(0, SIDE - CROP + 1, (2, batch, 1), device=device)
    places = torch.arange(CROP, device=device)
    rows, columns = corner[0] + places, corner[1] + places
    columns = torch.where(torch.rand(batch, 1, device=device) < 0.5, columns, columns.flip(1))
    x = images[chosen, rows[:, :, None], columns[:, None, :]].float()
    x = x + torch.empty(batch, 1, 1, 1, device=device).uniform_(-63, 63)
    mean = x.mean((1, 2), keepdim=True)
    x = (x - mean) * torch.empty(batch, 1, 1, 1, device=device).uniform_(0.2, 1.8) + mean
    mean = x.mean((1, 2, 3), keepdim=True)
    deviation = x.std((1, 2, 3), keepdim=True, correction=0).clamp_min(1 / (CROP * CROP * 3) ** 0.5)
    return ((x - mean) / deviation).permute(0, 3, 1, 2), chosen.flatten() % 10


class Training:
    """A network and its optimiser; `queue(i)` queues a step with batch i of those on the device."""

    def __init__(self, norm, precision, batches, device, mode):
        torch.manual_seed(1)
        self.net = Tutorial(norm).to(device, memory_format=torch.channels_last)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=0.01, fused=True)
        self.batches, self.device = batches, device
        self.scaler = torch.amp.GradScaler(device) if precision == "half" else None
        net = self.net
        narrow = {"bfloat16": torch.bfloat16, "half": torch.float16}.get(precision)
        autocast = torch.autocast(device, dtype=narrow) if narrow else contextlib.nullcontext()

        def loss_of(images, labels):
            with autocast:
                logits = net(images)
            decay = net.local3.weight.square().sum() + net.local4.weight.square().sum()
            return F.cross_entropy(logits.float(), labels) + 0.002 * decay

        options = {"autotuned": {"mode": "max-autotune-no-cudagraphs"}}.get(mode, {})  # the whole step is one graph of its own
        self.loss_of = loss_of if mode == "eager" else torch.compile(loss_of, dynamic=False, fullgraph=True, **options)
        self.loss = None

    def step(self, images, labels):
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss_of(images, labels)
        if self.scaler is None:
            loss.backward()
            self.optimiser.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimiser)
            self.scaler.update()
        return loss.detach()

    def queue(self, i):
        self.loss = self.step(*self.batches[i % len(self.batches)])

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()
        return float("nan") if self.loss is None else self.loss.item()


class Captured:
    """The whole step of a training as a CUDA graph. `inputs()` gives the batch of a step: a copy of one, or one that is made in the
    graph."""

    def __init__(self, training, images=None, batch=None):
        self.training, self.batches, self.loss = training, training.batches, None
        self.device = training.device
        if images is None:
            self.copied = tuple(one.clone(memory_format=torch.preserve_format) for one in training.batches[0])
            self.inputs = lambda: self.copied
        else:
            made = torch.compile(augment, dynamic=False, fullgraph=True)
            self.copied = None
            self.inputs = lambda: made(images, batch)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                training.step(*self.inputs())
        torch.cuda.current_stream().wait_stream(side)
        training.optimiser.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.captured_loss = training.step(*self.inputs())

    def queue(self, i):
        if self.copied is not None:
            for to, one in zip(self.copied, self.batches[i % len(self.batches)]):
                to.copy_(one, non_blocking=True)
        self.graph.replay()
        self.loss = self.captured_loss

    def wait(self):
        torch.cuda.synchronize()
        return float("nan") if self.loss is None else self.loss.item()


class Augmented(Training):
    """Each batch is made by augment(), without a graph: for a device that has none."""

    def __init__(self, norm, precision, images, batch, device):
        super().__init__(norm, precision, None, device, "compiled")
        self.images, self.batch, self.made = images, batch, torch.compile(augment, dynamic=False, fullgraph=True)

    def queue(self, i):
        self.loss = self.step(*self.made(self.images, self.batch))


def make_batches(batch, device):
    generator = torch.Generator().manual_seed(batch)
    return [
        (
            torch.randn(batch, 3, 24, 24, generator=generator).to(device).contiguous(memory_format=torch.channels_last),
            torch.randint(0, 10, (batch,), generator=generator).to(device),
        )
        for _ in range(4)
    ]


def make(mode, norm, precision, batches, size, images, device):
    if mode == "augmented":
        if device != "cuda":
            return Augmented(norm, precision, images, size, device)
        return Captured(Training(norm, precision, batches, device, "compiled"), images, size)
    training = Training(norm, precision, batches, device, mode)
    return Captured(training) if device == "cuda" and mode in ("captured", "autotuned") else training


def prepare(precision, sizes, seconds, device):
    """All programs that can be made in this time, by "BATCH MODE LRN"; the memory of each, and why others are missing."""
    end, longest = time.monotonic() + seconds, {}
    programs, described, why = {}, {}, {}
    batches = {size: make_batches(size, device) for size in sizes}
    images = torch.randint(0, 256, (IMAGES, SIDE, SIDE, 3), dtype=torch.uint8, device=device)
    first, *others = NORMS
    modes = ["eager", "compiled", "captured", "autotuned"]
    # The augmentation is compared in one precision.
    wanted = [(mode, first, size) for mode in modes for size in sizes]
    wanted += [("augmented", first, size) for size in sizes if precision == "bfloat16"]
    wanted += [(mode, name, size) for name in others for mode in ("compiled", "captured", "eager") for size in sizes]
    for mode, name, size in wanted:
        key, begun = f"{size} {mode} {name}", time.monotonic()
        if programs and begun + longest.get(mode, 0) > end:
            why[key] = "no time was left for it"
            continue
        try:
            before = 0
            if device == "cuda":
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            program = make(mode, NORMS[name], precision, batches[size], size, images, device)
            for i in range(5):
                program.queue(i)
            program.wait()
            described[key] = {"bytes": torch.cuda.max_memory_allocated() - before if device == "cuda" else None}
            programs[key] = (program.queue, program.wait)
        except Exception as error:  # a program that PyTorch cannot make must not end the others
            why[key] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
        longest[mode] = max(longest.get(mode, 0), time.monotonic() - begun)
    return programs, described, why


def set_tf32(precision):
    """Sets both switches of TF32, and returns what they are then: PyTorch allows it in convolutions by default, and not in products.
    The old names are set where they exist: since PyTorch 2.9 they set the new ones too, while its compiler still reads the old ones,
    which is an error after the new ones were set."""
    asked = (precision in ("tf32", "tf32-convolutions"), precision == "tf32")
    convolutions, products = getattr(torch.backends.cudnn, "conv", None), torch.backends.cuda.matmul
    has_new = hasattr(convolutions, "fp32_precision") and hasattr(products, "fp32_precision")
    try:
        torch.backends.cudnn.allow_tf32, products.allow_tf32 = asked
        names = "allow_tf32"
    except (AttributeError, RuntimeError):
        if not has_new:
            raise
        convolutions.fp32_precision, products.fp32_precision = ("tf32" if each else "ieee" for each in asked)
        names = "fp32_precision"
    if has_new:
        found = (convolutions.fp32_precision == "tf32", products.fp32_precision == "tf32")
    else:
        found = (torch.backends.cudnn.allow_tf32, products.allow_tf32)
    if found != asked:
        raise SystemExit(f"PyTorch {torch.__version__} has TF32 in convolutions and products {found} after {names} was set to {asked}")
    words = ["on" if each else "off" for each in found]
    return {"names": names, "convolutions": words[0], "products": words[1]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("precision", choices=["float", "tf32-convolutions", "tf32", "bfloat16", "half"])
    parser.add_argument("sizes", type=lambda words: [int(word) for word in words.split(",")])
    parser.add_argument("seconds", type=float)
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    begin = time.monotonic()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    tf32 = set_tf32(options.precision)
    # One function is compiled separately for each batch size, mode and norm.
    torch._dynamo.config.cache_size_limit = 64
    programs, described, why = prepare(options.precision, options.sizes, options.seconds, options.device)
    import protocol

    if options.compile_only:
        print(protocol.json.dumps({"compiled": sorted(programs), "left_out": why, "seconds": time.monotonic() - begin}), flush=True)
        return
    if not programs:
        raise SystemExit(f"no program could be made: {why}")
    protocol.serve_queued(
        {
            "name": "PyTorch",
            "version": torch.__version__,
            "how": f"{options.precision}, channels last, fused SGD{', GradScaler' if options.precision == 'half' else ''}; "
            f"TF32 in convolutions {tf32['convolutions']}, in products {tf32['products']}, by {tf32['names']}",
            "tf32": options.precision == "tf32",
            "tf32_switches": tf32,
            "programs": described,
            "left_out": why,
        },
        programs,
    )


if __name__ == "__main__":
    main()
