# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over replicas: ResNet-44 trained on the same images with each policy for its running statistics.

For 2 and 4 replicas and a global batch of 128: the accuracy on the test images, evaluated with the running statistics of the policy,
and the time of a step divided by that of `first` in the same round.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import machine
import turns

POLICIES = ("first", "last", "all", "merged", "synchronized")
PROGRAM = machine.PEERS / "build" / "batch_norm_policies"


def main():
    parser = argparse.ArgumentParser(prog="run batch-norm")
    parser.add_argument("--data", default=str(machine.ROOT / "examples" / "data" / "cifar10-sample.tar.xz"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--times", action="store_true", help="measure the times only; keep the accuracies of the page")
    options = parser.parse_args()
    computer = machine.describe()
    page = machine.MEASUREMENTS / "batch-norm.json"
    before = json.loads(page.read_text()) if options.times else {}
    commit = before.get("accuracies_at", before["machine"]["commit"]) if options.times else computer["commit"]
    if options.times:
        options.steps = before["options"]["steps"]
        if (measured := pathlib.Path(before["options"]["data"]).name) != pathlib.Path(options.data).name:
            sys.exit(f"the accuracies of {machine.MEASUREMENTS.name}/batch-norm.json are of {measured}")
    figures, rows = {}, []
    for replicas in (2, 4):
        command = [PROGRAM, options.data, str(replicas), str(0 if options.times else options.steps), str(options.rounds)]
        lines = [line.split() for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]
        times = {policy: [float(line[2]) for line in lines if line[:2] == ["time", policy]] for policy in POLICIES}
        for policy in POLICIES:
            name = f"{replicas} {policy}"
            if options.times:
                accuracy, loss = before["figures"][name]["accuracy"], before["figures"][name]["loss"]
            else:
                accuracy, loss = next((float(line[2]), float(line[3])) for line in lines if line[:2] == ["accuracy", policy])
            ratio = turns.ratios(times[policy], times["first"])
            figures[name] = {"accuracy": accuracy, "loss": loss, "time_over_first": ratio}
            rows.append([replicas, policy, f"{accuracy:.3f}", f"{loss:.3f}", turns.text_of(ratio, 2)])
    text = [
        "# Whose batch-normalisation statistics",
        "",
        f"Written by `tests/benchmarks/run batch-norm`. ResNet-44, a global batch of 128, {options.steps:,} steps "
        f"({options.steps * 128:,} images of {pathlib.Path(options.data).name}, the same for all) at a learning rate of 0.1, momentum "
        "0.9, statistics' decay 0.997. The accuracy is that of the test images with the running statistics that the policy kept. "
        "`first`, `last`, `all` and `merged` train the same parameters (each replica normalises by its own batch) and differ in what "
        "they keep; `synchronized` normalises by the whole global batch. Time: of a step over that of `first`, median (least to most) of "
        f"{options.rounds} rounds of 5 steps each; the policies take turns step by step.",
        *(["", f"The accuracies were measured at commit {commit[:12]}."] if options.times else []),
        "",
        *machine.lines(computer),
        "",
        *machine.table(["replicas", "statistics", "test accuracy", "training loss, last 20 steps", "time over `first`"], rows),
        "",
    ]
    print("\n".join(text))
    machine.MEASUREMENTS.mkdir(parents=True, exist_ok=True)
    (machine.MEASUREMENTS / "batch-norm.md").write_text("\n".join(text))
    page.write_text(
        json.dumps({"machine": computer, "accuracies_at": commit, "options": {**vars(options), "data": pathlib.Path(options.data).name}, "figures": figures}, indent=1) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
