#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains by a recipe of this folder (README.md), and writes OUT/recipe.json and OUT/recipe.log.

    train.py RECIPE DATA OUT --program CIFAR10_TRAIN [--device host|cuda] [--steps N] [--seconds S]

--steps ends the training earlier than the recipe; --seconds ends it after this time, evaluates it there, and leaves a checkpoint that the
next run with the same OUT continues from. The status is 0 if the training reached its end.
"""

import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# Kept of --seconds for the evaluation after a run that is stopped: the start of the program, the images, two passes over the test set.
EVALUATION_SECONDS = 25
# The flags that the runner sets.
OF_THE_RUNNER = ("--data-dir", "--train-dir", "--device", "--max-steps", "--json", "--log-every", "--resume")


class Refused(Exception):
    """A recipe that is not one, or a training that ended without a result."""


def recipes():
    return sorted(path.stem for path in HERE.glob("*.json"))


def read(name, folder=HERE):
    path = folder / f"{name}.json"
    if not path.exists():
        raise Refused(f"there is no recipe '{name}'; there are {', '.join(recipes())}")
    try:
        recipe = json.loads(path.read_text())
    except ValueError as error:
        raise Refused(f"{path} is not JSON: {error}") from None
    for key, kind in (("title", str), ("source", str), ("steps", int), ("flags", list), ("goal", dict)):
        if not isinstance(recipe.get(key), kind):
            raise Refused(f"{path} has no '{key}' of the right kind")
    unknown = recipe.keys() - {"title", "source", "steps", "flags", "goal", "host", "cuda"}
    if unknown:
        raise Refused(f"{path} has unknown fields: {', '.join(sorted(unknown))}")
    if recipe["goal"].keys() != {"weights", "precision"} or recipe["goal"]["weights"] not in ("moving averages", "trained parameters"):
        raise Refused(f"{path}: 'goal' has 'weights', which is \"moving averages\" or \"trained parameters\", and 'precision'")
    wrong = [flag for flag in (*recipe["flags"], *recipe.get("host", []), *recipe.get("cuda", [])) if flag in OF_THE_RUNNER]
    if wrong:
        raise Refused(f"{path}: the runner sets {', '.join(wrong)}")
    return recipe


def run_once(command, log, seconds):
    """Runs the program with its output in the log; after `seconds` it is asked to stop. Returns its status and the JSON lines."""
    begin = log.stat().st_size if log.exists() else 0
    with open(log, "ab") as printed:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # it ends after the step, and writes a checkpoint
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    with open(log, "rb") as printed:
        printed.seek(begin)
        text = printed.read().decode(errors="replace")
    lines = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                lines.append(json.loads(line))
            except ValueError:  # a line that was cut
                continue
    return process.returncode, lines, text


def train(program, data, name, out, device="cuda", steps=None, seconds=None, checkpoints=None):
    """Trains and evaluates; returns what recipe.json has. Raises Refused with the program's last line if there is no accuracy."""
    recipe = read(name)
    begin = time.monotonic()
    steps = min(recipe["steps"], steps or recipe["steps"])
    folder, log = checkpoints or out / "checkpoints", out / "recipe.log"
    out.mkdir(parents=True, exist_ok=True)
    command = [
        program, "--device", device, "--data-dir", data, "--train-dir", folder, "--json", "--log-every", max(1, steps // 200),
        "--summary-every", 0, "--checkpoint-every", max(1, steps // 10), "--keep-checkpoints", 1, *recipe["flags"], *recipe.get(device, []),
    ]  # fmt: skip

    def left():
        return None if seconds is None else max(1.0, seconds - (time.monotonic() - begin))

    resumed = ["--resume"] if any(folder.glob("model-*.safetensors")) else []
    limit = None if seconds is None else max(1.0, seconds - EVALUATION_SECONDS)
    status, lines, text = run_once([*command, "--max-steps", steps, *resumed], log, limit)
    trained = time.monotonic() - begin
    stopped = status == 128 + signal.SIGTERM
    if stopped:
        found = re.findall(r"stopped by signal \d+ after (\d+) steps?", text)
        if not found:
            raise Refused("the training was stopped and did not say where")
        at = int(found[-1])
        status, more, text = run_once([*command, "--max-steps", at, "--resume"], log, left())
        lines += more
    precision = {line["weights"]: line["precision"] for line in lines if "precision" in line}
    goal = recipe["goal"]
    if status != 0 or goal["weights"] not in precision:
        said = [line.strip() for line in text.splitlines() if line.strip()]
        raise Refused(f"cifar10_train ended with status {status} and no accuracy: {said[-1][:300] if said else 'it printed nothing'}")
    reports = [line for line in lines if "seconds_per_step" in line]
    middle = sorted(line["seconds_per_step"] for line in reports)
    result = {
        "recipe": name,
        "title": recipe["title"],
        "source": recipe["source"],
        "device": device,
        "command": [str(word) for word in command],
        "steps": max(line["step"] for line in lines if "precision" in line),
        "planned_steps": recipe["steps"],
        "seconds": trained,
        "seconds_per_step": middle[len(middle) // 2] if middle else None,
        "precision": precision,
        "goal": {**goal, "met": precision[goal["weights"]] >= goal["precision"]},
        "losses": [[line["step"], line["loss"]] for line in reports],
        "resumed": bool(resumed),
        "ended": not stopped and steps == recipe["steps"],
    }
    (out / "recipe.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def lines_of(result):
    """The result as text."""
    per_step = f", {1e3 * result['seconds_per_step']:.4f} ms per step" if result["seconds_per_step"] else ""
    lines = [
        result["title"],
        f"{result['steps']:,} of {result['planned_steps']:,} steps in {result['seconds']:.0f} s{per_step}, on {result['device']}",
    ]
    lines += [f"precision @ 1 with the {weights}: {value:.4f}" for weights, value in result["precision"].items()]
    goal = result["goal"]
    lines.append(f"goal: {goal['precision']} with the {goal['weights']}: {'met' if goal['met'] else 'not met'} ({result['source']})")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=["host", "cuda"], default="cuda")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    try:
        result = train(options.program.resolve(), options.data, options.recipe, options.out, options.device, options.steps, options.seconds)
    except (Refused, OSError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    print("\n".join(lines_of(result)))
    return 0 if result["ended"] else 2


if __name__ == "__main__":
    sys.exit(main())
