# SPDX-License-Identifier: Apache-2.0
"""Networks of other packages with random weights: zoo.py CHECKPOINT_TOOL PACKAGE, with torch, safetensors and the package installed.

For each of the package's networks that zoo.hpp has too, at its own size: a state dict as safetensors, as torch.save writes it and as
it wrote it before torch 1.6, unrenamed, gives the same outputs there, to 1e-4 of the largest. What Cupola then writes, PyTorch reads
with strict=True, and has the same tensors.

facenet_pytorch (MIT License) has weights in it, which are the ones taken, and its files are read as they are.
"""

import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file, save_file

BOUND = 1e-4
IMAGES = 2
TORCHVISION = ("resnet18", "resnet34", "resnet50", "vgg16", "mobilenet_v2", "convnext_tiny", "efficientnet_b0")
TIMM = ("resnet18", "resnet34", "resnet50", "timm/vgg16", "timm/mobilenetv2_100", "timm/tf_efficientnet_lite0", "timm/convnext_tiny")
RENAMED = tuple(name for name in TIMM if "/" in name) + ("efficientnet_b0",)
SIDES = {"pnet": (37, 45), "rnet": (24, 24), "onet": (48, 48)}


def networks_of(package):
    """The names that zoo.hpp has, each with a function that makes PyTorch's network."""
    module = import_module(package)
    if package == "torchvision":
        return {name: getattr(module.models, name) for name in TORCHVISION}
    if package == "timm":
        return {name: lambda name=name: module.create_model(name.removeprefix("timm/")) for name in TIMM}
    if package == "efficientnet_lite_pytorch":
        return {"efficientnet_lite0": lambda: module.EfficientNet.from_name("efficientnet-lite0")}
    return {"pnet": module.PNet, "rnet": module.RNet, "onet": module.ONet}


def outputs(network, images):
    """One row per image, of all outputs, channels last; MTCNN's last one, its probabilities, is the first here."""
    with torch.no_grad():
        values = network(images.permute(0, 3, 1, 2))
    if isinstance(values, tuple):
        values = torch.cat([values[-1], *values[:-1]], 1)
    return values.permute(0, 2, 3, 1).flatten(1) if values.dim() == 4 else values


def randomise(network, images):
    """Weights and statistics with which every layer has an effect on the outputs."""
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    outputs(network.train(), images)
    with torch.no_grad():
        for name, values in network.named_parameters():
            if name.endswith(("layer_scale", "gamma")):
                values.uniform_(-0.5, 0.5)
            elif values.dim() == 1:
                values += 0.02 * torch.rand_like(values)


def check(tool, name, network, folder, others):
    torch.manual_seed(3)
    images = torch.randn(IMAGES, *SIDES.get(name, (224, 224)), 3)
    images.numpy().tofile(folder / "images")
    if not others:
        randomise(network, images)
    state = {key: value.clone() for key, value in network.eval().state_dict().items()}
    theirs = outputs(network, images)
    assert theirs.std(0).mean() > 0.01 * theirs.abs().mean(), f"{name}: the outputs do not depend on the images"

    save_file(state, folder / "safetensors")
    torch.save(state, folder / "pth")
    torch.save(state, folder / "legacy", _use_new_zipfile_serialization=False)
    for file in (folder / "safetensors", folder / "pth", folder / "legacy", *others):
        # A checkpoint has Cupola's names: with a table of names, the file is written as one of torch.save.
        written = folder / ("written.safetensors" if file.name == "safetensors" and name not in RENAMED else "written.pth")
        command = [tool, "read", name, file, folder / "images", folder / "outputs", written]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        ours = torch.from_numpy(numpy.fromfile(folder / "outputs", dtype=numpy.float32)).reshape(theirs.shape)
        off = float((ours - theirs).abs().max() / theirs.abs().max())
        assert off < BOUND, f"{name}, {file.name}: the outputs differ by {off:.2e} of the largest"

        back = load_file(written) if written.suffix == ".safetensors" else torch.load(written, weights_only=True)
        for values in network.state_dict().values():
            values.zero_()
        network.load_state_dict(back, strict=True)
        # Counts of batches are not written.
        kept = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
        assert back.keys() == kept.keys() and all(torch.equal(network.state_dict()[key], value) for key, value in kept.items()), name
        written.unlink()
        print(f"{name}, {file.name}: {len(state)} tensors, outputs within {off:.1e}; {written.name} loads with strict=True", flush=True)


def main():
    tool, package = sys.argv[1:]
    for name, make in networks_of(package).items():
        others = []
        if package == "facenet_pytorch":
            others = [Path(import_module(package).__file__).parent / "data" / f"{name}.pt"]
        with tempfile.TemporaryDirectory(prefix="cupola_interop_") as folder:
            check(tool, name, make(), Path(folder), others)
    print("all checks passed")


if __name__ == "__main__":
    main()
