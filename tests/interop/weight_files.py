# SPDX-License-Identifier: Apache-2.0
"""The files of weights in a package: weight_files.py CHECKPOINT_TOOL PACKAGE, with torch, safetensors and the package installed.

Cupola reads every tensor of floats of every file with the value that PyTorch reads, and has no other tensors:

    lpips               pickles of Python 2 before torch 1.6, BSD 2-Clause License
    easyocr_en_models   CRAFT (MIT License) and EasyOCR's English network (Apache License 2.0), with names that begin with module.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file


def main():
    tool, package = sys.argv[1:]
    # Not imported: the code of these packages needs more packages than their files.
    found = importlib.util.find_spec(package)
    if found is None:
        print(f"skipped: {package} is missing; tests/benchmarks/run setup installs it")
        sys.exit(77)
    files = sorted(file for file in Path(found.submodule_search_locations[0]).rglob("*") if file.suffix in (".pth", ".pt"))
    assert files, f"{package} has no files of weights"
    for file in files:
        theirs = {key: value for key, value in torch.load(file, map_location="cpu", weights_only=True).items() if value.is_floating_point()}
        with tempfile.TemporaryDirectory(prefix="cupola_interop_") as folder:
            copy = Path(folder) / "copy.safetensors"
            result = subprocess.run([tool, "copy", file, copy], capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            ours = load_file(copy)
        assert ours.keys() == theirs.keys(), f"{file.name}: {ours.keys() ^ theirs.keys()}"
        assert all(torch.equal(ours[key], value.float()) for key, value in theirs.items()), file.name
        elements = sum(value.numel() for value in theirs.values())
        print(f"{package}, {file.name}: {len(theirs)} tensors with {elements} numbers are the same")
    print("all checks passed")


if __name__ == "__main__":
    main()
