# SPDX-License-Identifier: Apache-2.0
"""The inputs that fuzzing begins with, valid ones of every kind: seeds.py FOLDER SAMPLE.tar.xz."""

import io
import json
import lzma
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path


def safetensors(tensors, metadata=None, order=1):
    """tensors: name -> (type, shape, bytes)"""
    header, offset = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(dict(list(header.items())[::order]), separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def write_safetensors(folder):
    # The network of tests/io/checkpoint_support.hpp.
    shapes = {"conv1.weight": [3, 2, 1, 1], "conv1.bias": [3], "fc.weight": [2, 12], "fc.bias": [2], "6.weight": [2, 2]}

    def values(prefix):
        size = lambda shape: shape[0] * (size(shape[1:]) if len(shape) > 1 else 1)
        return {prefix + name: ("F32", shape, b"\x3f" * (4 * size(shape))) for name, shape in shapes.items()}

    own = {"format": "pt", "cupola.version": "1", "cupola.step": "1000", "cupola.optimizer_states": "exp_avg", "seed": "1"}
    everything = values("") | values("ema.") | values("optimizer.exp_avg.")
    files = {
        "empty": safetensors({}),
        "pytorch": safetensors(values(""), {"format": "pt"}),
        "reversed": safetensors(values(""), order=-1),
        "checkpoint": safetensors(everything, own | {"crc32c": "00000000"}),
        "unchecked": safetensors(everything, own),
        "texts": safetensors({"a\u00e9\n\"": ("U8", [1], b"x")}, {"k\\\t": "\U0001f600", "": ""}),
        "types": safetensors({k: (k, [2], b"x" * 2 * n) for k, n in {"BOOL": 1, "BF16": 2, "I64": 8, "F64": 8, "F8_E5M2": 1}.items()}),
        "scalars": safetensors({"a": ("F32", [], b"1234"), "b": ("F32", [0, 3], b""), "c": ("U8", [1] * 8, b"x")}),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_cifar10(folder):
    record = lambda label: bytes([label]) + bytes(range(256)) * 12
    files = {"one": record(3), "three": record(0) + record(9) + record(5), "label": record(10), "cut": record(1)[:-1], "empty": b""}
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_csv(folder):
    # The first byte chooses the options: 1 for classes, 2 for named inputs, 4 for semicolons.
    files = {
        "numbers": b"\0a,b,y\n1,2,3\n-4.5,+6e-3,.7\n",
        "classes": b"\1a,b,y\r\n1,2,cat\r\n3,4,dog\r\n5,6,cat\r\n",
        "quotes": b'\3"a","b","y"\n"1","2","one ""two"""\n 3 ,\t4,"x,\ny"',
        "semicolons": b"\7\xef\xbb\xbfb;text;a;y\n1;any, thing;2;10\n3;;4;9\n\n",
        "infinite": b"\0a,y\n1e39,1\n",
        "header": b"\0a,y\n",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_idx(folder):
    labels = lambda *values: struct.pack(">BBBBI", 0, 0, 8, 1, len(values)) + bytes(values)
    images = lambda count, height, width: struct.pack(">BBBBIII", 0, 0, 8, 3, count, height, width) + bytes(count * height * width)
    files = {
        "two": (labels(3, 9), images(2, 3, 4)),
        "one": (labels(0), images(1, 1, 1)),
        "label": (labels(10), images(1, 2, 2)),
        "cut": (labels(1), images(1, 2, 2)[:-1]),
        "none": (labels(), images(0, 28, 28)),
        "packed": (b"\x1f\x8b\x08\0", images(1, 2, 2)),
    }
    for name, (label, image) in files.items():
        (folder / name).write_bytes(struct.pack(">H", len(label)) + label + image)


def png(height, width, colour):
    """An image of 8 bits per sample, of red, green and blue where `colour` is true, else of grey."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    row = bytes(range((3 if colour else 1) * width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if colour else 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress((b"\0" + row) * height))
            + chunk(b"IEND", b""))


def write_archives(folder, sample):
    images = {}
    with tarfile.open(sample) as archive:
        for member in archive:
            part = "/".join(member.name.split("/")[:2])
            if member.name.endswith("/0000.jpg") and sum(name.startswith(part.split("/")[0]) for name in images) < 2:
                images[member.name] = archive.extractfile(member).read()
    for name, data in images.items():
        (folder / ("jpeg_" + name.replace("/", "_"))).write_bytes(b"j" + data)
    for name, colour in (("png_grey", False), ("png_colour", True)):
        (folder / name).write_bytes(b"j" + png(2, 3, colour))

    for mode in ("", "gz", "bz2", "xz"):
        for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            with tarfile.open(folder / f"tar{kind}_{mode}", f"w:{mode}", format=kind) as archive:
                for name, data in images.items():
                    info = tarfile.TarInfo(("x" * 110 + "/" if kind != tarfile.USTAR_FORMAT else "") + name)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    plain = (folder / f"tar{tarfile.USTAR_FORMAT}_").read_bytes()
    (folder / "tar_lzma").write_bytes(lzma.compress(plain, lzma.FORMAT_ALONE))
    half = len(plain) // 2
    (folder / "tar_xz_streams").write_bytes(lzma.compress(plain[:half], preset=0) + bytes(4) + lzma.compress(plain[half:]))
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(folder / f"zip{compression}", "w", compression) as archive:
            for name, data in images.items():
                archive.writestr(name, data)


def main():
    folder, sample = Path(sys.argv[1]), sys.argv[2]
    for name in ("safetensors", "cifar10", "archive", "csv", "idx"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "safetensors")
    write_cifar10(folder / "cifar10")
    write_archives(folder / "archive", sample)
    write_csv(folder / "csv")
    write_idx(folder / "idx")


if __name__ == "__main__":
    main()
