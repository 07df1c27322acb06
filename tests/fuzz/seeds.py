# SPDX-License-Identifier: Apache-2.0
"""The inputs that fuzzing begins with, valid ones of every kind: seeds.py FOLDER SAMPLE.tar.xz."""

import io
import json
import lzma
import pickle
import struct
import sys
import tarfile
import types
import zipfile
import zlib
from collections import OrderedDict
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
        "index": json.dumps({"metadata": {"total_size": 156.0, "of": [{}, -2e-3, None]}, "weight_map": {"a": "x", "\n": "y"}}, indent=2).encode(),
        "scalars": safetensors({"a": ("F32", [], b"1234"), "b": ("F32", [0, 3], b""), "c": ("U8", [1] * 8, b"x")}),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)


class TorchPickler(pickle.Pickler):
    """Writes what torch.save writes, without PyTorch: stand-ins have its names."""

    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    class Storage:
        def __init__(self, key, count, kind="FloatStorage"):
            self.key, self.count, self.kind = key, count, kind

    class Tensor:
        def __init__(self, storage, offset, shape, strides, function="_rebuild_tensor_v2", more=()):
            self.function = function
            self.arguments = (storage, offset, shape, strides, False, OrderedDict(), *more)

        def __reduce__(self):
            return getattr(TorchPickler.utils, self.function), self.arguments

    @classmethod
    def prepare(cls):
        sys.modules.update({"torch": cls.torch, "torch._utils": cls.utils})
        for name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter"):
            function = types.FunctionType((lambda *arguments: None).__code__, {}, name)
            function.__module__, function.__qualname__ = "torch._utils", name
            setattr(cls.utils, name, function)
        for name in ("FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage"):
            setattr(cls.torch, name, type(name, (), {"__module__": "torch"}))

    def persistent_id(self, value):
        if not isinstance(value, self.Storage):
            return None
        return "storage", getattr(self.torch, value.kind), value.key, "cpu", value.count


def write_torch(folder):
    TorchPickler.prepare()
    tensor, storage = TorchPickler.Tensor, TorchPickler.Storage

    def dumped(value, protocol=2):
        buffer = io.BytesIO()
        TorchPickler(buffer, protocol).dump(value)
        return buffer.getvalue()

    # The network of tests/io/checkpoint_support.hpp.
    first, second = storage("0", 24), storage("1", 24)
    state = OrderedDict(
        {
            "conv1.weight": tensor(first, 0, (3, 2, 1, 1), (2, 1, 1, 1)),
            "conv1.bias": tensor(first, 3, (3,), (2,)),
            "fc.weight": tensor(second, 0, (2, 12), (1, 2)),
            "fc.bias": tensor(second, 20, (2,), (0,)),
            "6.weight": tensor(first, 8, (2, 2), (2, 1)),
        }
    )
    half = state | {"6.weight": tensor(storage("0", 48, "HalfStorage"), 8, (2, 2), (2, 1))}
    nested = {"epoch": 3, "loss": 0.5, "model": OrderedDict(("module." + name, value) for name, value in state.items())}
    for name, value in {"state": state, "half": half, "nested": nested, "empty": {}, "list": [1, None, True, 1 << 40, 1 << 90, b"x"]}.items():
        for protocol in (2, 4):
            data = dumped(value, protocol)
            (folder / f"{name}{protocol}_zip").write_bytes(b"\x01" + data)
            (folder / f"{name}{protocol}_legacy").write_bytes(b"\x02" + data)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in {"data.pkl": dumped(state), "byteorder": b"little", "data/0": b"\x3f" * 96, "data/1": b"\x3f" * 96}.items():
            archive.writestr("w/" + name, data)
    (folder / "whole_zip").write_bytes(b"\x00" + whole.getvalue())
    header = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, state, ["0", "1"]]
    data = b"".join(dumped(value) for value in header) + 2 * (struct.pack("<Q", 24) + b"\x3f" * 96)
    (folder / "whole_legacy").write_bytes(b"\x00" + data)


def write_cifar10(folder):
    record = lambda label: bytes([label]) + bytes(range(256)) * 12
    files = {"one": record(3), "three": record(0) + record(9) + record(5), "label": record(10), "cut": record(1)[:-1], "empty": b""}
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_csv(folder):
    # The first byte chooses the options: 1 for classes, 2 for named inputs, 4 for semicolons, 8 for no header, 16 for columns without
    # a name that are ignored.
    files = {
        "numbers": b"\0a,b,y\n1,2,3\n-4.5,+6e-3,.7\n",
        "classes": b"\1a,b,y\r\n1,2,cat\r\n3,4,dog\r\n5,6,cat\r\n",
        "quotes": b'\3"a","b","y"\n"1","2","one ""two"""\n 3 ,\t4,"x,\ny"',
        "semicolons": b"\7\xef\xbb\xbfb;text;a;y\n1;any, thing;2;10\n3;;4;9\n\n",
        "infinite": b"\0a,y\n1e39,1\n",
        "header": b"\0a,y\n",
        "row": b"\0001.5,y\n2,3\n",
        "no_header": b"\x091,2,cat\n3,4,dog\n5,6,cat\n",
        "index": b"\x10,a,b,y\n0,1,2,3\n1,4,5,6\n",
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


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(height, width, colour_type, depth=8, before=b"", after=b""):
    """An image of `depth` bits per sample, of one of PNG's colour types: 2 is red, green and blue, 0 grey."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type] * width
    row = bytes(range((samples * depth + 7) // 8))
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + before
            + png_chunk(b"IDAT", zlib.compress((b"\0" + row) * height)) + after + png_chunk(b"IEND", b""))


def exif(orientation, order=">", kind=3):
    """EXIF of two entries: the maker, whose text lies outside of its entry, and the orientation."""
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    return ((b"MM" if order == ">" else b"II") + struct.pack(order + "HIH", 42, 8, 2) + struct.pack(order + "HHII", 0x10F, 2, 6, 38)
            + struct.pack(order + "HHI", 0x112, kind, 1) + value + bytes(4) + b"Maker\0")


def write_pngs(folder):
    gamma = png_chunk(b"gAMA", struct.pack(">I", 100000)) + png_chunk(b"sRGB", b"\0") + png_chunk(b"sBIT", b"\5")
    palette = png_chunk(b"PLTE", bytes(range(48)))
    files = {f"type{kind}_{depth}": png(3, 5, kind, depth, palette if kind == 3 else b"")
             for kind, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items() for depth in depths}
    files |= {
        "transparent": png(2, 3, 2, 8, png_chunk(b"tRNS", bytes(6))),
        "transparent_grey": png(2, 3, 0, 16, png_chunk(b"tRNS", bytes(2))),
        "transparent_palette": png(3, 5, 3, 8, palette + png_chunk(b"tRNS", bytes(range(5)))),
        "gamma": png(2, 3, 0, 8, gamma),
        "profile": png(2, 3, 2, 8, png_chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(200)))),
        "text": png(2, 3, 0, 8, png_chunk(b"zTXt", b"k\0\0" + zlib.compress(b"text" * 20))),
        "exif_after": png(2, 3, 2, 8, after=png_chunk(b"eXIf", exif(6))),
    }
    for orientation in range(10):
        chunk = png_chunk(b"eXIf", exif(orientation, "<>"[orientation % 2]))
        files[f"exif{orientation}"] = png(2, 3, 0, 8 * (1 + orientation % 2), chunk)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def jpeg_segment(mark, data):
    return b"\xff" + bytes([mark]) + struct.pack(">H", len(data) + 2) + data


def jpeg(components, before=b"", progressive=False):
    """8 x 8 pixels of one colour: every block is a difference of 0 and an end of block, a code of one bit each."""
    every = range(1, components + 1)
    table = lambda kind: jpeg_segment(0xC4, bytes([kind, 1]) + bytes(16))
    scan = lambda ids, range_of: jpeg_segment(0xDA, bytes([len(ids)]) + b"".join(bytes([i, 0]) for i in ids) + range_of) + b"\0"
    frame = struct.pack(">BHHB", 8, 8, 8, components) + b"".join(bytes([i, 0x11, 0]) for i in every)
    scans = scan(every, b"\0\x3f\0")
    if progressive:
        scans = scan(every, b"\0\0\1") + scan(every, b"\0\0\x10") + b"".join(scan([i], b"\1\x3f\0") for i in every)
    return (b"\xff\xd8" + before + jpeg_segment(0xDB, b"\0" + b"\1" * 64) + jpeg_segment(0xC2 if progressive else 0xC0, frame)
            + table(0) + table(0x10) + scans + b"\xff\xd9")


def write_jpegs(folder, samples):
    adobe = lambda transform: jpeg_segment(0xEE, b"Adobe" + bytes([0, 100, 0, 0, 0, 0, transform]))
    with_exif = lambda data: jpeg_segment(0xE1, b"Exif\0\0" + data)
    files = {f"sample{i}": data for i, data in enumerate(samples)}
    files |= {f"flat{k}": jpeg(k) for k in (1, 3, 4)} | {f"progressive{k}": jpeg(k, progressive=True) for k in (1, 3, 4)}
    files |= {f"adobe{k}_{transform}": jpeg(k, adobe(transform)) for k in (3, 4) for transform in range(4)}
    files |= {
        "jfif2": jpeg(3, jpeg_segment(0xE0, b"JFIF\0\2\1\0\0\1\0\1\0\0")),
        "extra": jpeg(3)[:-2] + bytes(16) + b"\xff\xd9",
        "cut": jpeg(3)[:-3],
        "exif_sample": samples[0][:2] + with_exif(exif(6)) + samples[0][2:],
        "exif_twice": jpeg(3, jpeg_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0") + 2 * with_exif(exif(8, "<"))),
    }
    for orientation in range(10):
        data = exif(orientation, "<>"[orientation % 2], 3 + orientation // 2 % 2)
        files[f"exif{orientation}"] = jpeg((1, 3, 4)[orientation % 3], with_exif(data))
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_archives(folder, sample):
    images = {}
    with tarfile.open(sample) as archive:
        for member in archive:
            part = "/".join(member.name.split("/")[:2])
            if member.name.endswith("/0000.jpg") and sum(name.startswith(part.split("/")[0]) for name in images) < 2:
                images[member.name] = archive.extractfile(member).read()
    for name, data in images.items():
        (folder / ("jpeg_" + name.replace("/", "_"))).write_bytes(b"j" + data)
    for name, colour_type in (("png_grey", 0), ("png_colour", 2)):
        (folder / name).write_bytes(b"j" + png(2, 3, colour_type))

    for mode in ("", "gz", "bz2", "xz"):
        for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            with tarfile.open(folder / f"tar{kind}_{mode}", f"w:{mode}", format=kind) as archive:
                for name, data in images.items():
                    info = tarfile.TarInfo(("x" * 110 + "/" if kind != tarfile.USTAR_FORMAT else "") + name)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    plain = (folder / f"tar{tarfile.USTAR_FORMAT}_").read_bytes()
    with tarfile.open(folder / "split", "w") as archive:
        for name, data in images.items():
            info = tarfile.TarInfo("pets/" + name.split("/", 1)[1].replace("/", f"/{len(name)}"))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    (folder / "split").write_bytes(b"s" + (folder / "split").read_bytes())
    (folder / "tar_lzma").write_bytes(lzma.compress(plain, lzma.FORMAT_ALONE))
    half = len(plain) // 2
    (folder / "tar_xz_streams").write_bytes(lzma.compress(plain[:half], preset=0) + bytes(4) + lzma.compress(plain[half:]))
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(folder / f"zip{compression}", "w", compression) as archive:
            for name, data in images.items():
                archive.writestr(name, data)
    return list(images.values())


def main():
    folder, sample = Path(sys.argv[1]), sys.argv[2]
    for name in ("safetensors", "cifar10", "archive", "jpeg", "png", "csv", "idx", "torch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "safetensors")
    write_torch(folder / "torch")
    write_cifar10(folder / "cifar10")
    write_jpegs(folder / "jpeg", write_archives(folder / "archive", sample))
    write_pngs(folder / "png")
    write_csv(folder / "csv")
    write_idx(folder / "idx")


if __name__ == "__main__":
    main()
