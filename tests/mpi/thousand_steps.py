#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares long trainings of four replicas in 1, 2 and 4 processes with those of one process without MPI, byte by byte.

  tests/mpi/slurm python3 tests/mpi/thousand_steps.py build/dev/tests/mpi/mpi_long_trainings --save    with srun
  python3 tests/mpi/thousand_steps.py build/dev/tests/mpi/mpi_long_trainings --steps 20                  without it

The launchers are the system's mpirun, the one of Open MPI 5.0 that cmake/setup.sh fetches, and srun where SLURM runs; one that
is not there is left out, but not with --save, which writes docs/measurements/processes-equality.md. The status is not 0 if a
byte differs."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benchmarks"))
import machine

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    **{f"{launcher}_ALLOW_RUN_AS_ROOT{confirm}": "1" for launcher in ("OMPI", "PRTE") for confirm in ("", "_CONFIRM")},
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


def launchers():
    """The names of the launchers, and the commands before the number of processes."""
    options = ["--oversubscribe", "--bind-to", "none", "-n"]
    newer = machine.ROOT / ".deps" / "openmpi5" / "bin" / "mpirun"
    found = {"mpirun": [shutil.which("mpirun"), *options], "mpirun 5": [str(newer), *options]}
    found = {
        f"`mpirun` of Open MPI {version[1]}": command
        for command in found.values()
        if command[0] and (version := re.search(r"\(Open MPI\) (\d+\.\d+\.\d+)", machine.output_of(command[0], "--version")))
    }
    if machine.output_of("sinfo", "--noheader"):
        found["`srun --mpi=pmix` of SLURM " + machine.output_of("srun", "--version").split()[-1]] = [*("srun", "--mpi=pmix", "-n")]
    return found


def trained(command, policy, steps, folder):
    """Runs one job, and returns its seconds."""
    folder.mkdir()
    start = time.monotonic()
    arguments = [policy, str(steps), str(folder)]
    done = subprocess.run([*command, *arguments], env=ENVIRONMENT, text=True, capture_output=True, timeout=3600)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join([*command, *arguments])} ended with the status {done.returncode}\n{done.stdout}{done.stderr}")
    return time.monotonic() - start


def different(folder, expected, processes):
    """The trainings of `folder` in which some process has other bytes than the file `expected(training)`."""
    return [
        f"{training}, process {process}"
        for training in trainings_of(folder)
        for process in range(processes)
        if (folder / f"{training}.{process}").read_bytes() != expected(training).read_bytes()
    ]


def trainings_of(folder):
    return sorted(path.stem for path in folder.glob("*.losses"))


def largest(folder, expected, first, last):
    """The largest relative difference of the losses of the steps `first` to `last`, from 0, and its training."""

    def losses(place, training):
        return [float(line) for line in (place / f"{training}.losses").read_text().split()][first:last]

    return max(
        (abs(a - b) / abs(b), training)
        for training in trainings_of(folder)
        for a, b in zip(losses(folder, training), losses(expected, training), strict=True)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    program = str(options.program.resolve())
    found = launchers()
    if options.save and len(found) < 3:
        sys.exit("error: --save needs all launchers, but there are only " + ", ".join(found))
    computer = machine.describe()

    problems, rows, sums = [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        alone = folder / "alone"
        seconds = trained([program], "ConcatMean", options.steps, alone)
        trainings = trainings_of(alone)
        size = sum((alone / f"{training}.0").stat().st_size for training in trainings)
        print(f"one process: {len(trainings)} trainings, {size:,} bytes to compare, {seconds:.0f} s", flush=True)

        def run(launcher, processes, policy):
            place = folder / f"{len(list(folder.iterdir()))}"
            seconds = trained([*found[launcher], str(processes), program], policy, options.steps, place)
            if trainings_of(place) != trainings:
                sys.exit(f"error: {launcher} with {processes} processes has other trainings: {trainings_of(place)}")
            print(f"{policy}, {launcher}, {processes} processes: {seconds:.0f} s", flush=True)
            return place, seconds

        for launcher in found:
            for policy in ("MpiConcatMean", "MpiConcatMean by messages"):
                for processes in options.processes:
                    if processes == 1 and policy != "MpiConcatMean":
                        continue
                    place, seconds = run(launcher, processes, policy)
                    differ = different(place, lambda training: alone / f"{training}.0", processes)
                    problems += [f"{policy}, {launcher}, {processes} processes: {each}" for each in differ]
                    shares = "none" if processes == 1 else "memory" if policy == "MpiConcatMean" else "messages"
                    same = len(trainings) - len({each.split(",")[0] for each in differ})
                    rows.append([launcher, processes, shares, f"{same} of {len(trainings)}", f"{seconds:.0f}"])
                    shutil.rmtree(place)
        for launcher in found:
            for processes in options.processes:
                place, _ = run(launcher, processes, "MpiAllReduce")
                differ = different(place, lambda training: place / f"{training}.0", processes)
                problems += [f"MpiAllReduce, {launcher}, {processes} processes are not equal: {each}" for each in differ]
                early = [largest(place, alone, 0, steps) for steps in (1, 10)]
                # The order of the additions is all that differs.
                if early[1][0] > 1e-4:
                    problems.append(f"MpiAllReduce, {launcher}, {processes} processes: a loss differs by {early[1]}")
                same = len(trainings) - len({each.split(",")[0] for each in differ})
                late = [largest(place, alone, 0, steps)[0] for steps in (100, options.steps)]
                sums.append(
                    [launcher, processes, f"{same} of {len(trainings)}", *(f"{each:.1e}" for each in (early[0][0], early[1][0], *late))]
                )
                shutil.rmtree(place)

    steps = f"{options.steps:,}"
    text = [
        "# Equality of processes",
        "",
        "Written by `tests/mpi/slurm python3 tests/mpi/thousand_steps.py build/dev/tests/mpi/mpi_long_trainings --save`, which "
        "compares trainings of four replicas in 1, 2 and 4 processes with those of one process without MPI (`ConcatMean`).",
        "",
        f"{len(trainings)} trainings (`tests/mpi/long_trainings.cpp`) of {steps} steps: the tutorial's kinds of layer with dropout; and a ResNet with both "
        "shortcuts and dropout, with `FirstReplica`, `LastReplica`, `AllReplicas`, `Pooled` and `Synchronized`; each with equal and unequal "
        "batches, some of them empty, without and with accumulation over two batches, but `Synchronized` not with the last two together. All "
        "with momentum, weight decay and a moving average of the parameters. Every process writes all its reports (loss, and loss, "
        "parts, samples and weight of each replica in each step) and its last parameters, running statistics, averages and "
        f"optimiser's state: {size:,} bytes for all trainings.",
        "",
        "`MpiConcatMean`: the trainings in which every process wrote the same bytes as the one process. Seconds are those of the whole "
        "job on a machine that was also used by others.",
        "",
        *machine.table(["launcher", "processes", "shared", "identical", "seconds"], rows),
        "",
        "`MpiAllReduce`: the trainings in which all processes wrote the same bytes, and the largest relative difference of a "
        "loss from the one process's. The order of additions is the only difference; its effect grows with the steps, as that of "
        "any rounding does in a training.",
        "",
        *machine.table(["launcher", "processes", "equal processes", "in step 1", "in 10 steps", "in 100 steps", f"in {steps} steps"], sums),
        "",
        *machine.lines(computer),
        "",
    ]
    print("\n".join(text))
    if problems:
        sys.exit("\n".join(["error: these differ:", *problems]))
    if options.save:
        (machine.MEASUREMENTS / "processes-equality.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
