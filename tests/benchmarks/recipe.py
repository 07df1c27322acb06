# SPDX-License-Identifier: Apache-2.0
"""The precision that the tutorial's whole recipe reaches on all of CIFAR-10, with one replica, two replicas and TensorFlow.

    recipe.py DATA_DIR OUT_DIR [--only NAME,...] [--steps N] [--threads N] [--report]

DATA_DIR contains cifar-10-batches-bin; OUT_DIR contains the runs, each of which continues where it stopped. After the training, every
kept checkpoint is evaluated on the 10,000 test images, with the moving averages and without. --report only writes the pages from the
results in OUT_DIR. Two commands with --threads 1 and different --only, at the same time on the two threads of a core, end sooner than
one after the other. The runs:

    one          1 replica of 128, 100,000 steps: the tutorial's own
    tensorflow   the same in TensorFlow (peers/tensorflow_accuracy.py)
    two          2 replicas of 128, 30,000 steps at the same rate: what the tutorial's users ran
    two-small    2 replicas of 64, 60,000 steps: the same images, the global batch of one replica
    two-scaled   2 replicas of 128, 30,000 steps, the rate scaled linearly with a warm-up of 500 steps
"""

import argparse
import csv
import json
import pathlib
import re
import shutil
import subprocess
import sys

import machine

RUNS = {
    "one": ["--num-replicas", "1", "--batch-size", "128"],
    "two": ["--num-replicas", "2", "--batch-size", "128"],
    "two-small": ["--num-replicas", "2", "--batch-size", "64"],
    "two-scaled": ["--num-replicas", "2", "--batch-size", "128", "--lr-scaling", "linear", "--warm-up-steps", "500"],
}
STEPS = {"one": 100_000, "tensorflow": 100_000, "two": 30_000, "two-small": 60_000, "two-scaled": 30_000}
IMAGES = {"one": 128, "tensorflow": 128, "two": 256, "two-small": 128, "two-scaled": 256}
TITLES = {
    "one": "Cupola, 1 replica of 128",
    "tensorflow": "TensorFlow 2.21, the same recipe",
    "two": "Cupola, 2 replicas of 128, rate not scaled",
    "two-small": "Cupola, 2 replicas of 64",
    "two-scaled": "Cupola, 2 replicas of 128, rate scaled linearly",
}
PROGRAMS = machine.ROOT / "build" / "release" / "examples"


def train(name, options):
    steps = min(options.steps, STEPS[name])
    folder = options.out_dir / name
    if name == "tensorflow":
        python = machine.PEERS / "tensorflow" / "bin" / "python"
        script = pathlib.Path(__file__).parent / "peers" / "tensorflow_accuracy.py"
        threads = ["--threads", str(options.threads)] if options.threads else []
        subprocess.run([python, script, options.data_dir, folder, "--steps", str(steps), *threads], check=True)
        return
    resume = ["--resume"] if any(folder.glob("model-*.safetensors")) else []
    threads = ["--num-devices", "1", "--threads-per-device", str(options.threads), "--prefetch-workers", "0"] if options.threads else []
    with open(options.out_dir / f"{name}.out", "a") as out:
        command = [
            PROGRAMS / "cifar10_train", "--data-dir", options.data_dir / "cifar-10-batches-bin", "--train-dir", folder,
            "--max-steps", str(steps), "--log-every", "100", "--checkpoint-every", "1000", "--keep-checkpoints", "1000",
            *RUNS[name], *threads, *resume,
        ]  # fmt: skip
        subprocess.run(command, stdout=out, check=True)


def evaluate(name, options):
    """OUT_DIR/NAME/precision.csv, with the checkpoints evaluated that it lacks: every 5,000 steps and the last."""
    folder = options.out_dir / name
    table = folder / "precision.csv"
    known = {int(row["step"]): row for row in csv.DictReader(open(table))} if table.exists() else {}
    files = {int(re.search(r"model-(\d+)", f.name)[1]): f for f in folder.glob("model-[0-9]*.safetensors")}
    for step in sorted(files):
        if step in known or (step % 5000 != 0 and step != max(files)):
            continue
        precision = []
        for flags in ([], ["--no-averages"]):
            command = [
                PROGRAMS / "cifar10_eval", "--checkpoint", files[step], "--run-once", "--data-dir",
                options.data_dir / "cifar-10-batches-bin", "--predictions", folder / "predictions.csv", *flags,
            ]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, text=True)
            rows = list(csv.DictReader(open(folder / "predictions.csv")))
            precision.append(sum(row["label"] == row["prediction"] for row in rows) / len(rows))
        known[step] = {"step": step, "precision_with_averages": precision[0], "precision": precision[1]}
    with open(table, "w", newline="") as file:
        writer = csv.DictWriter(file, ["step", "precision_with_averages", "precision"])
        writer.writeheader()
        writer.writerows(known[step] for step in sorted(known))


def report(options):
    pages = machine.MEASUREMENTS / "recipe"
    pages.mkdir(parents=True, exist_ok=True)
    curves = {}
    for name in TITLES:
        folder = options.out_dir / name
        if not (folder / "precision.csv").exists():
            continue
        curves[name] = {int(r["step"]): r for r in csv.DictReader(open(folder / "precision.csv"))}
        shutil.copy(folder / "precision.csv", pages / f"{name}.precision.csv")
        shutil.copy(folder / "train.log", pages / f"{name}.log")
        tensorboard = machine.PEERS / "tensorboard" / "bin" / "python"
        if name != "tensorflow" and tensorboard.exists():
            exporter = machine.ROOT / "tests" / "board" / "scalars_csv.py"
            scalars = subprocess.run([tensorboard, exporter, folder], check=True, capture_output=True, text=True).stdout
            (pages / f"{name}.scalars.csv").write_text(scalars)
    rows = []
    for name, curve in curves.items():
        last = max(curve)
        row = curve[last]
        rows.append([TITLES[name], f"{last:,}", f"{last * IMAGES[name]:,}", f"{float(row['precision_with_averages']):.4f}",
                     f"{float(row['precision']):.4f}", f"{STEPS[name]:,}"])  # fmt: skip
    steps = sorted({step for curve in curves.values() for step in curve if step % 5000 == 0})
    curve_rows = [
        [f"{step:,}"] + [f"{float(c[step]['precision_with_averages']):.4f}" if step in c else "" for c in curves.values()]
        for step in steps
    ]
    text = [
        "# The tutorial's recipe on all of CIFAR-10",
        "",
        "Written by `tests/benchmarks/run recipe`. All 50,000 training images (a copy of the data set whose images were "
        "re-encoded as JPEG: compare only figures of this page with each other), precision @ 1 on the 10,000 test images, each once. "
        "Plain SGD at 0.1, decay 0.004 on local3 and local4, moving averages of 0.9999. Beside this page, in `recipe/`: the logs, "
        "the precision at every 5,000 steps and the scalars of the event files.",
        "",
        *machine.lines(machine.describe()),
        "",
        *machine.table(["run", "steps", "images", "precision @ 1, averages", "trained parameters", "steps planned"], rows),
        "",
        "With the moving averages, by step:",
        "",
        *machine.table(["step", *(TITLES[name] for name in curves)], curve_rows),
        "",
    ]
    (machine.MEASUREMENTS / "recipe.md").write_text("\n".join(text))
    (machine.MEASUREMENTS / "recipe.json").write_text(json.dumps({"machine": machine.describe(), "curves": curves}, indent=1) + "\n")
    print("\n".join(text))


def main():
    parser = argparse.ArgumentParser(prog="run recipe", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", type=pathlib.Path)
    parser.add_argument("out_dir", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(TITLES))
    parser.add_argument("--steps", type=int, default=100_000, help="largest number of steps of each run")
    parser.add_argument("--threads", type=int, help="threads of each run, all on one device. Default: all processors")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    options.out_dir.mkdir(parents=True, exist_ok=True)
    for name in options.only.split(","):
        if not options.report:
            train(name, options)
        if name != "tensorflow" and (options.out_dir / name).exists():
            evaluate(name, options)
    report(options)


if __name__ == "__main__":
    sys.exit(main())
