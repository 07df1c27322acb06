# SPDX-License-Identifier: Apache-2.0
"""Usage: make_archives.py FOLDER. Archives such as CIFAR-10's, with 20 images per file, and some that must not be unpacked; then a
line for each with its name, SHA-256 and MD5."""

import gzip
import hashlib
import io
import pathlib
import random
import sys
import tarfile

RECORD = 3073
NAMES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
random.seed(1)


def records(count=20, label=None):
    return b"".join(bytes([i % 10 if label is None else label]) + random.randbytes(RECORD - 1) for i in range(count))


def plain(name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member, data


def link(name, to, kind):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member, b""


def folder(name):
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    return member, b""


def archive(members):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


top = "cifar-10-batches-bin"
files = [folder(top), *(plain(f"{top}/{name}", records()) for name in NAMES), plain(f"{top}/readme.html", b"hello")]
good = archive(files)
archives = {
    "good": good,
    "cut": good[: len(good) // 2],
    "text": b"this is no archive\n" * 100,
    "nothing": b"",
    "empty": archive([folder(top)]),
    "above": archive([*files, plain("../evil", b"evil")]),
    "through": archive([*files, plain(f"{top}/../evil", b"evil")]),
    "absolute": archive([plain("/tmp/cupola-evil", b"evil"), *files]),
    "deeper": archive([*files, plain(f"{top}/more/evil", b"evil")]),
    "beside": archive([*files, plain("other/evil", b"evil")]),
    "symlink": archive([*files, link(f"{top}/evil", "/etc/passwd", tarfile.SYMTYPE)]),
    "hardlink": archive([*files, link(f"{top}/evil", f"{top}/test_batch.bin", tarfile.LNKTYPE)]),
    "many": archive([*files, *(plain(f"{top}/{i}", b"") for i in range(200))]),
    "bomb": gzip.compress(b""),
    "label": archive([*files[:3], plain(f"{top}/data_batch_3.bin", records(label=10)), *files[4:]]),
    "short": archive([*files[:-2]]),
}
# More bytes than the data set can have, in few.
raw = io.BytesIO()
with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=1) as tar:
    member = tarfile.TarInfo(f"{top}/zeros.bin")
    member.size = 1_100_000_000
    with open("/dev/zero", "rb") as zeros:
        tar.addfile(member, zeros)
archives["bomb"] = raw.getvalue()

for name, data in archives.items():
    (pathlib.Path(sys.argv[1]) / name).write_bytes(data)
    print(name, hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest())
