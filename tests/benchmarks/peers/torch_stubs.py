# SPDX-License-Identifier: Apache-2.0
"""Makes the CUDA build of PyTorch importable on a machine without CUDA and without its gigabytes of libraries.

The wheel's libtorch_cuda.so needs cuBLAS, cuDNN, NCCL and others at import, although a run on the CPU never calls them. This script
writes one small library that defines every missing symbol as a function that aborts, under the names of these libraries. The CUDA
runtime and CUPTI, which are called at import, are the real ones (small wheels).
"""

import pathlib
import re
import subprocess
import sys

REAL = ("libcudart.so", "libcupti.so", "libcuda.so")
CUDA = re.compile(r"lib(cu|nv|nccl)")


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def symbols(library, *flags):
    found = set()
    for line in lines("nm", "-D", *flags, str(library)):
        found.add(line.split()[-1].split("@")[0])
    return found


def main(site_packages):
    site_packages = pathlib.Path(site_packages)
    folder = site_packages / "torch" / "lib"
    stubs = site_packages / "nvidia" / "cu13" / "lib"  # in the wheel's own search path
    stubs.mkdir(parents=True, exist_ok=True)
    own = sorted(folder.glob("*.so*"))
    missing, undefined, defined = set(), set(), set()
    for library in own:
        needed = {m[1] for m in (re.search(r"NEEDED.*\[(.*)\]", line) for line in lines("readelf", "-d", str(library))) if m}
        missing |= {name for name in needed if CUDA.match(name) and not name.startswith(REAL) and not (folder / name).exists()}
        defined |= symbols(library, "--defined-only")
        undefined |= symbols(library, "--undefined-only")
    for library in stubs.glob("libcu*.so.*"):
        if library.name.startswith(REAL):
            defined |= symbols(library, "--defined-only")
    wanted = sorted(
        name
        for name in undefined - defined
        if re.match(r"_?_?(cu(blas|dnn|fft|File|sparse|solver|rand)|nccl|nvshmem|nvJitLink|nvrtc)", name)
    )
    source = "void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in wanted)
    stub = stubs / "libno_cuda.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-fno-builtin", "-x", "c", "-", "-o", str(stub)], input=source, text=True, check=True)
    for name in sorted(missing):
        path = stubs / name
        if not path.exists():
            path.symlink_to(stub.name)
    print(f"PyTorch without CUDA: {len(wanted)} symbols stand in for {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main(sys.argv[1])
