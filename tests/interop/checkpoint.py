# SPDX-License-Identifier: Apache-2.0
"""Checkpoints between Cupola and PyTorch: checkpoint.py CHECKPOINT_TOOL, with torch and safetensors installed.

For the tutorial's network and for one with batch normalisation, a residual block with groups and a layer between Flatten and Linear:
a checkpoint that Cupola wrote loads here by `load_state_dict(strict=True)` and gives the same logits to 1e-5, with the
trained parameters and with their moving averages; `torch.load(weights_only=True)` reads the same tensors of the file
that Cupola wrote for it; the optimiser's state has the parameters' extents; and a file that `save_file(model.state_dict())`,
also as several files with an index, or `torch.save(model.state_dict())` wrote here gives the same logits there. Files that do
not fit are rejected with a message.

A file of a U-Net with transposed convolutions gives the same logits there to 1e-4. zoo.py has the networks of other packages.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

IMAGES = 8


class Tutorial(nn.Module):
    """The network of TensorFlow's tutorial; its SAME padding puts the odd place at the end."""

    shape = (24, 24, 3)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        self.local3 = nn.Linear(2304, 384)
        self.local4 = nn.Linear(384, 192)
        self.softmax_linear = nn.Linear(192, 10)
        # TensorFlow's alpha of 0.001 / 9 is of the sum, PyTorch's of the mean.
        self.norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)

    @staticmethod
    def pool(x):
        return functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)

    def forward(self, x):
        x = self.norm(self.pool(functional.relu(self.conv1(x))))
        x = self.pool(self.norm(functional.relu(self.conv2(x))))
        x = functional.relu(self.local3(x.flatten(1)))
        return self.softmax_linear(functional.relu(self.local4(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, (3, 5), padding=(1, 4), dilation=(1, 2), groups=2, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        return x + self.conv2(functional.relu(self.bn1(self.conv1(x))))


class Residual(nn.Module):
    shape = (8, 6, 3)

    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn0 = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(Block())
        self.fc = nn.Linear(8 * 6 * 4, 5)

    def forward(self, x):
        x = functional.relu(self.layer1(functional.relu(self.bn0(self.conv0(x)))))
        return self.fc(functional.dropout(x.flatten(1), 0.5, self.training))


class DoubleConv(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        layers = []
        for into in (channels, outputs):
            layers += [nn.Conv2d(into, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(channels, outputs))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, outputs, 2, 2)
        self.conv = DoubleConv(2 * outputs, outputs)

    def forward(self, x, before):
        return self.conv(torch.cat((before, self.up(x)), 1))


class TransposedUNet(nn.Module):
    """The modules of milesial's UNet, with fewer channels."""

    shape = (16, 24, 3)

    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(3, 4)
        self.down1, self.down2 = Down(4, 8), Down(8, 16)
        self.up1, self.up2 = Up(16, 8), Up(8, 4)
        self.outc = nn.Module()
        self.outc.conv = nn.Conv2d(4, 5, 1)

    def forward(self, x):
        first = self.inc(x)
        second = self.down1(first)
        y = self.outc.conv(self.up2(self.up1(self.down2(second), second), first))
        return y.permute(0, 2, 3, 1).flatten(1)  # channels last, as the tool's logits


def difference(a, b):
    return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))


def transposed(tensor):
    """The same values with other strides."""
    order = tuple(range(tensor.dim())[::-1])
    return tensor.permute(order).contiguous().permute(order)


class Check:
    def __init__(self, tool, name, network, folder):
        self.tool, self.name, self.network, self.folder = tool, name, network, folder
        generator = torch.Generator().manual_seed(7)
        self.images = torch.randn(IMAGES, *network.shape, generator=generator)
        self.images.numpy().tofile(self.folder / "images")

    def run(self, command, file):
        return subprocess.run(
            [self.tool, command, self.name, str(file), str(self.folder / "images"), str(self.folder / "logits")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def logits_there(self, command, file):
        result = self.run(command, file)
        assert result.returncode == 0, result.stderr
        logits = torch.from_numpy(numpy.fromfile(self.folder / "logits", dtype=numpy.float32))
        return logits.reshape(-1, IMAGES, logits.numel() // IMAGES if command == "read" else logits.numel() // IMAGES // 2)

    def logits_here(self, state):
        model = self.network().eval()
        model.load_state_dict(state, strict=True)
        with torch.no_grad():
            return model(self.images.permute(0, 3, 1, 2))

    def same(self, what, ours, theirs, bound=1e-5):
        off = difference(ours, theirs)
        print(f"{self.name}: {what}: relative difference of the logits {off:.2e}")
        assert ours.shape == theirs.shape and off < bound, what

    def refused(self, what, state, message, metadata=None):
        file = self.folder / "refused.safetensors"
        save_file(state, file, metadata=metadata)
        result = self.run("read", file)
        print(f"{self.name}: {what}: {result.stderr.strip()}")
        assert result.returncode == 1 and message in result.stderr and result.stderr.count("\n") == 1, what

    def from_cupola(self):
        file = self.folder / "cupola.safetensors"
        there = self.logits_there("write", file)
        tensors = load_file(file)
        own = {k: v for k, v in tensors.items() if not k.startswith(("ema.", "optimizer."))}
        with zipfile.ZipFile(f"{file}.pth") as archive:
            assert archive.testzip() is None, "a checksum is wrong"
        exported = torch.load(f"{file}.pth", weights_only=True)
        assert exported.keys() == own.keys(), "the names of the exported tensors are not those of the checkpoint"
        assert all(torch.equal(exported[k], own[k]) and exported[k].is_contiguous() for k in own), "the exported tensors differ"
        averages = {k.removeprefix("ema."): v for k, v in tensors.items() if k.startswith("ema.")}
        momentum = {k.removeprefix("optimizer.momentum_buffer."): v for k, v in tensors.items() if k.startswith("optimizer.")}
        self.same("Cupola's checkpoint in PyTorch", there[0], self.logits_here(own))
        self.same("Cupola's moving averages in PyTorch", there[1], self.logits_here(own | averages))
        parameters = {k: v.shape for k, v in self.network().named_parameters()}
        assert {k: v.shape for k, v in momentum.items()} == parameters, "the momenta are not those of the parameters"
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
        assert metadata["cupola.step"] == "1234" and metadata["network"] == 'of random values, for "PyTorch"\n'
        assert metadata["format"] == "pt" and len(metadata["crc32c"]) == 8
        self.refused("a checkpoint that was changed and saved again", tensors, "is damaged: its checksum should be", metadata)

    def one_from_pytorch(self, bound=1e-5):
        torch.manual_seed(3)
        model = self.network()
        # The statistics of these images: with those of a new module, the outputs of many layers do not depend on the images.
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0
        with torch.no_grad():
            model(self.images.permute(0, 3, 1, 2))
        # Not the weights, which are random: many layers of a mean that is not 0 overflow.
        state = {k: v + 0.02 * torch.rand_like(v) if v.dim() == 1 else v for k, v in model.state_dict().items()}
        file = self.folder / "torch.safetensors"
        save_file(state, file)
        logits = self.logits_here(state)
        assert logits.std(0).mean() > 0.01 * logits.abs().mean(), "the logits do not depend on the images"
        self.same("PyTorch's file in Cupola", self.logits_there("read", file)[0], logits, bound)
        return state, file

    def from_pytorch(self):
        state, file = self.one_from_pytorch()
        for kind in (torch.float16, torch.bfloat16, torch.float64):
            saved = {k: v.to(kind) if v.is_floating_point() else v for k, v in state.items()}
            save_file(saved, file)
            logits = self.logits_here({k: v.float() if v.is_floating_point() else v for k, v in saved.items()})
            self.same(f"PyTorch's file of {kind} in Cupola", self.logits_there("read", file)[0], logits)
        for what, saved, options in (
            ("torch.save", state, {}),
            ("torch.save before 1.6", state, {"_use_new_zipfile_serialization": False}),
            ("torch.save with protocol 4", state, {"pickle_protocol": 4}),
            ("a checkpoint of torch.save", {"epoch": 3, "model": {f"module.{k}": v for k, v in state.items()}}, {}),
            ("a state dict with a list, as some training scripts store", {**state, "mask_values": [0, 1]}, {}),
            ("a checkpoint with arguments", {"args": argparse.Namespace(lr=0.1), "model_state_dict": state}, {}),
            ("torch.save of transposed tensors", {k: transposed(v) for k, v in state.items()}, {}),
        ):
            torch.save(saved, self.folder / "torch.pth", **options)
            self.same(f"PyTorch's file of {what} in Cupola", self.logits_there("read", self.folder / "torch.pth")[0], self.logits_here(state))
        index = {}
        for part in range(2):
            name = f"model-{part + 1:05}-of-00002.safetensors"
            shard = dict(list(state.items())[part::2])
            save_file(shard, self.folder / name)
            index |= {k: name for k in shard}
        file = self.folder / "model.safetensors.index.json"
        file.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}, indent=2))
        self.same("PyTorch's files with an index in Cupola", self.logits_there("read", file)[0], self.logits_here(state))
        torch.save(self.network(), self.folder / "torch.pth")
        result = self.run("read", self.folder / "torch.pth")
        assert result.returncode == 1 and f"torch.pth holds an object of __main__.{self.network.__name__}, and a dictionary " in result.stderr, result.stderr
        whole = {k: v.int() if v.is_floating_point() else v for k, v in state.items()}
        self.refused("whole numbers", whole, "has elements of type I32; F32, F16, BF16 and F64 are supported")
        first = next(iter(state))
        self.refused("a tensor missing", {k: v for k, v in state.items() if k != first}, f"it has no tensor {first}")
        self.refused("a tensor more", state | {"more": torch.zeros(3)}, "it has a tensor more, which this network does not have")
        self.refused("another shape", state | {first: torch.zeros(1, 2)}, f"its {first} is [1,2], and this network's is ")


def main():
    for name, network in (("tutorial", Tutorial), ("residual", Residual)):
        with tempfile.TemporaryDirectory(prefix="cupola_interop_") as folder:
            check = Check(sys.argv[1], name, network, Path(folder))
            check.from_cupola()
            check.from_pytorch()
    with tempfile.TemporaryDirectory(prefix="cupola_interop_") as folder:
        Check(sys.argv[1], "transposed_unet", TransposedUNet, Path(folder)).one_from_pytorch(1e-4)
    print("all checks passed")


if __name__ == "__main__":
    main()
