# SPDX-License-Identifier: Apache-2.0
"""Runs tests/fuzz/run and tests/torture/kill, and writes what they said as a page. Either one's failure ends it with no page."""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benchmarks"))
import machine

# What each target of tests/fuzz/ reads, and the most memory that it allows.
READERS = {
    "safetensors": ("safetensors and checkpoints: `io/safetensors.hpp`", "the file and 1 MiB"),
    "cifar10": ("CIFAR-10's binary files: `data/cifar10.hpp`", "the files and 1 MiB"),
    "csv": ("CSV files: `data/csv.hpp`", "200 times the file and 1 MiB"),
    "idx": ("MNIST's idx files: `data/idx.hpp`", "6 times the files and 1 MiB"),
    "archive": ("archives and the images in them: `data/image_folder.hpp`", "the file and the limits on pixels, dictionary and output"),
    "jpeg": ("JPEG images with EXIF: `data/impl/images/jpeg_decoder.hpp`", "16 MiB and 16 times the pixels"),
    "png": ("PNG images with EXIF: `data/impl/images/png_decoder.hpp`", "16 MiB and 16 times the pixels"),
}


def said_by(*command):
    """The lines of a command, shown while it runs."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip("\n"))
    if process.wait() != 0:
        sys.exit(f"error: {command[0]} failed")
    return lines


def fuzzed(reader, inputs):
    lines = said_by(machine.ROOT / "tests" / "fuzz" / "run", inputs, reader)
    return next(int(line.split()[1]) for line in lines if line.startswith("stat::number_of_executed_units"))


def main():
    parser = argparse.ArgumentParser(prog="tests/torture/run")
    parser.add_argument("--inputs", type=int, default=3_400_000, help="for each reader")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    computer = machine.describe()
    readers = {reader: fuzzed(reader, options.inputs) for reader in READERS}
    killed = said_by(
        machine.ROOT / "tests" / "torture" / "kill",
        machine.ROOT / "build" / "release" / "examples" / "cifar10_train",
        machine.ROOT / "examples" / "data" / "cifar10-sample.tar.xz",
        options.kills,
    )[-1]
    total = sum(readers.values())
    text = [
        "# Robustness",
        "",
        "Written by `tests/torture/run`.",
        "",
        f"Fuzzed input: libFuzzer gave {total:,} inputs to the readers of files, built with AddressSanitizer and "
        "UndefinedBehaviorSanitizer. None crashed, took 10 seconds, took more memory than is allowed, or got another answer than data "
        "or one message.",
        "",
        *machine.table(["reader", "memory allowed", "inputs"], [[*READERS[reader], f"{inputs:,}"] for reader, inputs in readers.items()]),
        "",
        "`kill -9`: a training of two replicas that writes a checkpoint after each of its 40 steps and summaries after every "
        "third is killed at random moments of its life and resumed each time (`tests/torture/kill`): " + killed + ".",
        "",
        *machine.lines(computer),
        "",
    ]
    machine.publish(options, "robustness", "\n".join(text), {"machine": computer, "inputs": readers, "kills": killed})


if __name__ == "__main__":
    main()
