# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over replicas: ResNet-44 trained on the same images with each policy for its running statistics.

For 2 and 4 replicas and a global batch of 128: the accuracy on the test images that evaluation reaches with the running
statistics that the policy kept, and the time of a step against that of `first` in the same round. The policies take turns, a
short run for the time each, so that a machine that slows down slows all of them.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

import machine

POLICIES = ("first", "last", "all", "merged", "synchronized")


def run(options, replicas, policy, steps, seed):
    command = [
        str(options.program), "--model", "resnet", "--bn-stats", policy, "--num-replicas", str(replicas),
        "--batch-size", str(128 // replicas), "--max-steps", str(steps), "--seed", str(seed), "--json", "--log-every", "1",
        "--ema-decay", "0", "--learning-rate", str(options.learning_rate), "--schedule", "constant",
    ]  # fmt: skip
    if options.data_dir:
        command += ["--data-dir", options.data_dir]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    accuracy = float(re.search(r"test accuracy = ([0-9.]+)", out)[1])
    return {
        "accuracy": accuracy,
        "loss": statistics.mean(line["loss"] for line in lines[-10:]),
        "seconds_per_step": statistics.median(line["seconds_per_step"] for line in lines[2:]),
    }


def main():
    parser = argparse.ArgumentParser(prog="run batch-norm")
    parser.add_argument("--program", type=pathlib.Path, default=machine.ROOT / "build" / "release" / "examples" / "cifar10_train")
    parser.add_argument("--data-dir", help="of CIFAR-10; default: the sample of 5,000 images")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--time-steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    options = parser.parse_args()
    computer = machine.describe()
    figures = {}
    for replicas in (2, 4):
        for policy in POLICIES:
            figures[f"{replicas} {policy}"] = run(options, replicas, policy, options.steps, 1)
            print(replicas, policy, figures[f"{replicas} {policy}"], flush=True)
        ratios = {policy: [] for policy in POLICIES}
        for _ in range(options.rounds):
            times = {policy: run(options, replicas, policy, options.time_steps, 1)["seconds_per_step"] for policy in POLICIES}
            for policy in POLICIES:
                ratios[policy].append(times[policy] / times["first"])
        for policy in POLICIES:
            figures[f"{replicas} {policy}"]["time_over_first"] = statistics.median(ratios[policy])
    rows = [
        [replicas, policy, f"{f['accuracy']:.3f}", f"{f['loss']:.3f}", f"{f['time_over_first']:.2f}"]
        for replicas in (2, 4)
        for policy in POLICIES
        for f in [figures[f"{replicas} {policy}"]]
    ]
    text = [
        "# Whose batch-normalisation statistics",
        "",
        "Written by `tests/benchmarks/run batch-norm`. ResNet-44, a global batch of 128, "
        f"{options.steps} steps ({options.steps * 128:,} images, the same for all) at a learning rate of {options.learning_rate}, "
        "momentum 0.9. The accuracy is that of the trained parameters with the running statistics that the policy kept. `first`, "
        "`last`, `all` and `merged` train the same parameters (each replica normalises by its own batch) and differ in what they "
        "keep; `synchronized` normalises by the whole global batch. Time of a step over that of `first`, median of "
        f"{options.rounds} rounds in turn.",
        "",
        *machine.lines(computer),
        "",
        *machine.table(["replicas", "statistics", "test accuracy", "training loss, last 10 steps", "time over `first`"], rows),
        "",
    ]
    print("\n".join(text))
    machine.MEASUREMENTS.mkdir(parents=True, exist_ok=True)
    (machine.MEASUREMENTS / "batch-norm.md").write_text("\n".join(text))
    (machine.MEASUREMENTS / "batch-norm.json").write_text(
        json.dumps({"machine": computer, "steps": options.steps, "figures": figures}, indent=1) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
