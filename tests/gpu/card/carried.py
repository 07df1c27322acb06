# SPDX-License-Identifier: Apache-2.0
"""The programs that tests/gpu/pack builds on one machine and tests/gpu/run starts on another.

    carried.py pack ROOT BUILD FOLDER PROGRAM...      writes the programs of BUILD to FOLDER (what tests/gpu/pack does last)
    carried.py commit ROOT FOLDER                     writes FOLDER/commit.json, which names the commit of the sources, without programs

FOLDER/manifest.json names the format, the commit, a digest of the sources, the programs and the tests of each; the programs are in
FOLDER/programs.tar.xz. They find their libraries in the folder lib/ beside bin/, which unpack() fills on the other machine with links to
what it finds there, so that no environment variable is needed."""

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

FORMAT = 1
PROGRAMS = [
    "test_gpu_ops",
    "test_cuda_host",
    "test_gpu_training",
    "test_step_calls",
    "two_processes",
    "bench_machine",
    "bench_step_float",
    "bench_step_bfloat16",
    "bench_step_half",
    "bench_batches",
    "bench_averaging",
    "cifar10_train",
]
LOADER_SECONDS = GIT_SECONDS = 20
# What the carried programs need of the processor, as in /proc/cpuinfo: x86-64-v3.
INSTRUCTIONS = ("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
# NVIDIA's libraries, which are looked for on the other machine, by the beginnings of their names; cuDNN and NVRTC open others by name.
LIBRARIES = ("libcudnn", "libcublas", "libnccl", "libcupti", "libnvrtc", "libnvJitLink")
# What every Linux system has; all other libraries travel.
OF_THE_SYSTEM = ("ld-linux", "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libresolv.so", "libutil.so", "linux-vdso", "libcuda.so")


def sources_digest(root):
    """Of all sources that a program of the GPU may be built from, with their paths."""
    digest = hashlib.sha256()
    names = re.compile(r"(\.(hpp|ipp|cuh|cu|cpp|cmake)|CMakeLists\.txt)$")
    paths = [pathlib.Path(root, name) for name in ("CMakeLists.txt", "CMakePresets.json")]
    for folder in ("cmake", "examples", "include", "tests"):
        paths += sorted(path for path in pathlib.Path(root, folder).rglob("*") if names.search(path.name))
    for path in paths:
        if path.is_file():
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def commit_of(root):
    """The commit of a checkout, and whether it has changes; ("unknown", False) without git."""
    try:
        words = ["git", "-C", str(root)]
        commit = subprocess.run([*words, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True, timeout=GIT_SECONDS).stdout.strip()
        changes = subprocess.run([*words, "status", "--porcelain"], capture_output=True, text=True, check=True, timeout=GIT_SECONDS).stdout.strip()
        return commit, bool(changes)
    except (OSError, subprocess.SubprocessError):
        return "unknown", False


def sources_of(root):
    """What names the sources of a checkout: its commit, whether it has changes, and the digest."""
    commit, changed = commit_of(root)
    return {"commit": commit, "changed": changed, "sources": sources_digest(root)}


def commit_in(folder, root):
    """The name of the commit of the sources in `root`: that which tests/gpu/pack has written to `folder`, or of the checkout; "unknown" if there
    is none. Sources other than those that were packed have changes."""
    for name in ("manifest.json", "commit.json"):
        try:
            packed = json.loads((folder / name).read_text())
            changed = packed["changed"] or packed["sources"] != sources_digest(root)
            if packed["commit"] != "unknown":
                return packed["commit"] + (" with changes" if changed else "")
        except (OSError, ValueError, KeyError, TypeError):
            continue
    commit, changed = commit_of(root)
    return commit + (" with changes" if changed else "")


def tests_of(build, files):
    """The tests that ctest knows of these programs: {"name", "program", "arguments", "alone"}."""
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True).stdout
    found = []
    programs = {str(path.resolve()): name for name, path in files.items()}
    for test in json.loads(listed)["tests"]:
        command = test.get("command") or []
        if not command or str(pathlib.Path(command[0]).resolve()) not in programs:
            continue
        properties = {item["name"]: item["value"] for item in test.get("properties", [])}
        found.append(
            {
                "name": test["name"],
                "program": programs[str(pathlib.Path(command[0]).resolve())],
                "arguments": command[1:],
                "alone": bool(properties.get("RESOURCE_LOCK")),
            }
        )
    return found


def files_of(build):
    """The programs that a build folder has."""
    places = {name: [build / "tests/gpu" / name, build / "tests/gpu/card/bench" / name, build / "examples" / name] for name in PROGRAMS}
    return {name: next(path for path in paths if path.exists()) for name, paths in places.items() if any(map(pathlib.Path.exists, paths))}


def libraries_of(program):
    """The libraries that travel with a program: those that it needs, but for the system's and NVIDIA's."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\S+) => (\S+) \(", listed, re.M)
    return [pathlib.Path(path) for name, path in found if not name.startswith((*OF_THE_SYSTEM, *LIBRARIES))]


def without_origin(entry):
    """The entry of an archive that is the same whoever packs it, and when."""
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry


def pack(root, build, folder, wanted):
    """Writes the archive and its manifest; returns the manifest."""
    files = {name: path for name, path in files_of(build).items() if name in wanted}
    missing = [name for name in wanted if name not in files]
    if missing:
        raise SystemExit(f"error: not built: {', '.join(missing)}")
    staged = build / "carried"
    shutil.rmtree(staged, ignore_errors=True)
    for name in ("bin", "own", "lib"):
        (staged / name).mkdir(parents=True)
    programs, own = {}, {}
    # Their run path is lib/ beside them; what they need of oneDNN is found there.
    for path in (root / ".deps/onednn/lib").glob("libdnnl.so.*"):
        (staged / "lib" / path.name).symlink_to(path.resolve())
    for name, path in files.items():
        shutil.copy2(path, staged / "bin" / name)
        subprocess.run(["strip", staged / "bin" / name], check=True)
        programs[name] = {"bytes": (staged / "bin" / name).stat().st_size}
        own.update({path.name: path for path in libraries_of(staged / "bin" / name)})
    for name, path in own.items():
        shutil.copy2(path.resolve(), staged / "own" / name)
        subprocess.run(["strip", "--strip-unneeded", staged / "own" / name], check=True)
    archive = folder / "programs.tar.xz"
    archive.unlink(missing_ok=True)
    begin = time.monotonic()
    if shutil.which("xz"):
        # -6 needs about 100 MiB per thread, and the archive is unpacked in seconds.
        pack = f"set -o pipefail; tar --sort=name --mtime=@0 --owner=0 --group=0 -C '{staged}' -c bin own | xz -6 -T2 >'{archive}'"
        subprocess.run(["bash", "-c", pack], check=True)
    else:
        # Python's own compressor, by one thread.
        with tarfile.open(archive, "w:xz") as packing:
            for part in ("bin", "own"):
                packing.add(staged / part, part, filter=without_origin)
    shutil.rmtree(staged)
    manifest = {
        "format": FORMAT,
        **sources_of(root),
        "archive": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "compressed_s": round(time.monotonic() - begin, 1),
        "programs": programs,
        "libraries": sorted(own),
        "tests": tests_of(build, files),
    }
    (folder / "manifest.json").unlink(missing_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


class Unusable(Exception):
    """Why carried programs cannot be used here."""


def manifest_of(folder, root):
    """The manifest, if the programs are those of these sources and the archive is whole."""
    path, archive = folder / "manifest.json", folder / "programs.tar.xz"
    if not path.exists() or not archive.exists():
        raise Unusable(f"there are no carried programs in {folder}: tests/gpu/pack makes them")
    try:
        manifest = json.loads(path.read_text())
        known = manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise Unusable(f"{path} is not a manifest of tests/gpu/pack") from None
    if known != FORMAT:
        raise Unusable(f"{path} has format {known}, and this is format {FORMAT}: run tests/gpu/pack of this commit")
    if manifest["sources"] != sources_digest(root):
        raise Unusable("the carried programs were built from other sources than those here: run tests/gpu/pack again")
    if manifest["archive"] != hashlib.sha256(archive.read_bytes()).hexdigest():
        raise Unusable(f"{archive} is not the archive that was packed: it was changed or cut on its way")
    return manifest


def processor_lacks(cpuinfo=None):
    """The instructions of x86-64-v3 that this processor does not have."""
    text = pathlib.Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    flags = set(re.findall(r"^flags\s*:(.*)$", text, re.M)[0].split()) if re.search(r"^flags\s*:", text, re.M) else set()
    return [name for name in INSTRUCTIONS if name not in flags]


def library_folders():
    """Where NVIDIA's libraries are looked for, in this order: the wheels of this Python, which PyTorch uses too; the toolkit; the system."""
    found = []
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations if spec is not None else None) or []:
        found += sorted(pathlib.Path(folder).glob("*/lib"))
    for root in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")):
        found += [pathlib.Path(root, name) for name in ("lib64", "lib", "targets/x86_64-linux/lib", "extras/CUPTI/lib64")]
    found += [pathlib.Path(name) for name in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib")]
    return [folder for folder in found if folder.is_dir()]


def link_libraries(to, own, folders):
    """Links the libraries that were carried, in `own`, and each of NVIDIA's from the first folder that has it; returns where the latter
    were found."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for path in own.iterdir():
        (to / path.name).symlink_to(path.resolve())
    origin = {}
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if ".so" in path.name and path.name.startswith(LIBRARIES) and path.name not in origin and path.exists():
                (to / path.name).symlink_to(path.resolve())
                origin[path.name] = str(folder)
    return origin


def unpack(folder, to):
    """Unpacks the programs to `to`, and links the libraries. Returns where each of NVIDIA's libraries was found."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    with tarfile.open(folder / "programs.tar.xz") as archive:
        archive.extractall(to, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    return link_libraries(to / "lib", to / "own", library_folders())


def what_it_lacks(program, seconds=LOADER_SECONDS):
    """What the dynamic loader says in at most LOADER_SECONDS that is missing for this program, without running it; empty if it would start."""
    seconds = max(0.1, min(seconds, LOADER_SECONDS))
    asked = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    try:
        ended = subprocess.run([str(program)], env=asked, capture_output=True, text=True, timeout=seconds)
    except OSError as error:
        return [str(error)]
    except subprocess.TimeoutExpired:
        return [f"the loader had not ended after {seconds:.0f} s"]
    output = ended.stdout + ended.stderr
    lines = [line.strip() for line in output.splitlines()]
    wrong = [line for line in lines if re.search(r"not found|cannot open|error while", line)]
    # What libraries miss is their own affair: they may never call it.
    wrong += [line for line in lines if "undefined symbol" in line and str(program) in line]
    if not wrong and ended.returncode != 0:
        wrong = lines[-1:] or [f"the loader ended with status {ended.returncode}"]
    return list(dict.fromkeys(wrong))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "commit":
        pathlib.Path(sys.argv[3], "commit.json").write_text(json.dumps(sources_of(pathlib.Path(sys.argv[2]).resolve()), indent=1) + "\n")
        raise SystemExit
    if len(sys.argv) < 6 or sys.argv[1] != "pack":
        raise SystemExit(__doc__)
    written = pack(*(pathlib.Path(word).resolve() for word in sys.argv[2:5]), sys.argv[5:])
    for program_name, about in written["programs"].items():
        print(f"{about['bytes'] / 2**20:6.1f} MiB  {program_name}")
    print(f"carried libraries: {', '.join(written['libraries'])}")
