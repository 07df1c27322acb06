# SPDX-License-Identifier: Apache-2.0
"""The cost of running a trained network: the size of examples/predict, the time from the start of the process to the first printed
class, the memory, and the time per further image, compared with PyTorch. One thread each.

The programs run by turns in several rounds; the figures are medians. Usage: run predict [--rounds N] [--no-save] [--program FILE]
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time

import machine

HERE = machine.ROOT / "tests" / "benchmarks"
SAMPLE = machine.ROOT / "examples" / "data" / "cifar10-sample.tar.xz"
MORE_IMAGES = 500


def run_once(command):
    """(elapsed seconds, CPU seconds, peak MB) of a process from its start to its end."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {message}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def sizes_of(program, folder):
    """The sizes in bytes of the stripped program and of each library that it loads."""
    stripped = folder / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    libraries = {}
    for line in machine.output_of("ldd", str(program)).splitlines():
        found = re.search(r"(\S+) => (/\S+)", line)
        if found:
            libraries[found[1]] = os.stat(found[2]).st_size
    return stripped.stat().st_size, libraries


def main():
    parser = argparse.ArgumentParser(prog="run predict")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--program", type=pathlib.Path, default=machine.ROOT / "build" / "release" / "examples" / "predict")
    parser.add_argument("--no-save", action="store_true", help="print the results, but do not write docs/measurements")
    options = parser.parse_args()
    computer = machine.describe()
    python = machine.PEERS / "torch" / "bin" / "python"
    samples, busiest = {}, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        size, libraries = sizes_of(options.program, folder)
        state = folder / "state.pt"
        subprocess.run([python, HERE / "peers" / "torch_predict.py", state], check=True)
        with tarfile.open(SAMPLE) as archive:
            member = next(m for m in archive if m.name.endswith(".jpg"))
            (folder / "image.jpg").write_bytes(archive.extractfile(member).read())
        (folder / "image.raw").write_bytes(bytes(range(256)) * 12)

        def cupola(count):
            return [str(options.program), str(state.with_suffix(".safetensors")), *[str(folder / "image.jpg")] * count]

        def torch(count):
            return [str(python), str(HERE / "peers" / "torch_predict.py"), str(state), str(folder / "image.raw"), str(count)]

        commands = {
            "Cupola, one image": cupola(1),
            f"Cupola, {1 + MORE_IMAGES} images": cupola(1 + MORE_IMAGES),
            "PyTorch, one image": torch(1),
            f"PyTorch, {1 + MORE_IMAGES} images": torch(1 + MORE_IMAGES),
        }
        samples = {key: [] for key in commands}
        names = list(commands)
        for command in commands.values():
            run_once(command)  # the first run reads files from the disk
        for number in range(options.rounds):
            machine.wait_until_quiet(0.1, 30)
            for key in names[number % len(names) :] + names[: number % len(names)]:
                busy, _ = machine.busy_seconds()
                sample = run_once(commands[key])
                others = max(0.0, machine.busy_seconds()[0] - busy - sample[1]) / sample[0] / os.cpu_count()
                # The counters of /proc/stat are too coarse for a process of a few milliseconds.
                if sample[0] > 0.5:
                    busiest = max(busiest, others)
                samples[key].append(sample)
    figures = {key: machine.middle(values) for key, values in samples.items()}
    for peer in ("Cupola", "PyTorch"):
        few, many = figures[f"{peer}, one image"], figures[f"{peer}, {1 + MORE_IMAGES} images"]
        figures[peer] = {"ms_per_further_image": 1e3 * (many["seconds"] - few["seconds"]) / MORE_IMAGES}

    text = [
        "# Running a trained network",
        "",
        f"`tests/benchmarks/run predict`: `examples/predict` beside PyTorch (eager), one thread each, by turns, {options.rounds} rounds; "
        "medians. Seconds from the start of the process to its end, in brackets of the processor; megabytes are its peak.",
        "",
        *machine.lines(computer),
        f"- others used at most {busiest:.1%} of the machine meanwhile",
        "",
        *machine.table(
            ["the tutorial's network", "one image: seconds", "MB", "each further image: ms"],
            [
                [
                    peer,
                    f"{v['seconds']:.3f} ({v['processor_seconds']:.3f})",
                    f"{v['megabytes']:.0f}",
                    f"{figures[peer]['ms_per_further_image']:.2f}",
                ]
                for peer in ("Cupola", "PyTorch")
                for v in (figures[f"{peer}, one image"],)
            ],
        ),
        "",
        "A further image is a file that is opened, decoded, cut and run. PyTorch's is in memory as bytes.",
        "",
        f"The program has {size / 1000:.0f} kB, stripped. It loads libraries of {sum(libraries.values()) / 1e6:.1f} MB, of which oneDNN "
        f"has {sum(v for k, v in libraries.items() if k.startswith('libdnnl')) / 1e6:.1f} MB.",
    ]
    page = "\n".join(text) + "\n"
    figures = {
        "machine": computer,
        "rounds": options.rounds,
        "program_bytes": size,
        "library_bytes": libraries,
        "figures": figures,
        "others_busy": busiest,
    }
    machine.publish(options, "predict", page, figures)


if __name__ == "__main__":
    sys.exit(main())
