#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""predicted.py PROGRAM FOLDER [--check]

Writes FOLDER/gpu-predicted.md and gpu-predicted.json: what a training step launches on a GPU, and the time that each launch must take
at least, from what PROGRAM (gpu_predicted) records on the emulator. With --check it writes nothing, and fails unless the files are
those that it would write; the bytes of kernels are recorded at the smaller batch only, which takes seconds, and once for two precisions with
the same kernels."""

import argparse
import collections
import dataclasses
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import roofline  # noqa: E402

BATCHES = (128, 2048)
PRECISIONS = ("bfloat16", "bfloat16-padded", "half", "tf32", "float")
# Precisions whose kernels move the bytes of the kernels of another: that has one more, or differs in how the products are rounded.
KERNELS_OF = {"bfloat16": "bfloat16-padded", "tf32": "float"}
# The step that has a goal, with the time that an estimate by parts gave it when it had so many launches: its kernels and calls as the
# like of them are known to run, none of them near its bound. Each part is a guess, which nothing here computes.
BY_PARTS = {"precision": "bfloat16", "batch": 128, "card": "H200", "launches": 24, "seconds": 134e-6}
NAMES = {"bfloat16": "bf16", "bfloat16-padded": "bf16, padded", "half": "half", "tf32": "TF32", "float": "float"}


def launches_of(program, precision, batch, *words):
    said = subprocess.run([program, precision, str(batch), *words], capture_output=True, text=True)
    if said.returncode != 0:
        sys.exit(f"{program} {precision} {batch} ended with status {said.returncode}: {said.stderr.strip()}")
    found = json.loads(said.stdout)
    for launch in found:
        launch["name"] = roofline.kernel_name(launch["name"])
    return found


def bytes_text(count):
    return f"{count / 1e6:,.2f}" if count >= 10_000 else "0.01" if count > 0 else "0"


def microseconds(seconds):
    return f"{1e6 * seconds:,.2f}"


def name_text(name):
    """For a table: its words may be long, and none of its characters is Markdown's."""
    return f"`{name if len(name) <= 90 else name[:87] + '...'}`"


def table(head, rows):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"

    return [line(head), "| " + " | ".join("-" * width for width in widths) + " |", *(line(row) for row in rows)]


def summary_rows(steps):
    rows = []
    for step in steps:
        launches, precision = step["launches"], step["precision"]
        moved = sum(launch["read"] + launch["written"] for launch in launches)
        cells = [f"{NAMES[precision]} {step['batch']}", str(len(launches)), str(sum(launch["library"] for launch in launches))]
        cells += [f"{moved / 1e9:.3f}", f"{sum(launch['operations'] for launch in launches) / 1e9:.1f}"]
        for card in roofline.CARDS:
            for of_launch in (roofline.bound_of_launch, roofline.predicted_of_launch):
                cells.append(f"{1e3 * sum(of_launch(launch, precision, card) for launch in launches):.3f}")
        rows.append(cells)
    return rows


def step_lines(step, others):
    """The launches of a step in their order; neighbours that are equal are one line. `others` are the precisions with the same
    launches, at other rates."""
    precisions = [step["precision"], *others]
    lines, rows = [f"## {' and '.join(NAMES[each] for each in precisions)}, batch {step['batch']}", ""], []
    for launch in step["launches"]:
        if rows and rows[-1][0] == launch:
            rows[-1][1] += 1
        else:
            rows.append([launch, 1])
    head = ["launch", "times", "MB read", "MB written", "GFLOP"]
    head += [f"{card}{' ' + NAMES[precision] if len(precisions) > 1 else ''}, us" for precision in precisions for card in roofline.CARDS]
    cells = []
    for launch, count in rows:
        bounds = [microseconds(roofline.bound_of_launch(launch, precision, card)) for precision in precisions for card in roofline.CARDS]
        operations = f"{launch['operations'] / 1e9:.3f}" if launch["operations"] else ""
        cells.append(
            [name_text(launch["name"]), str(count), bytes_text(launch["read"]), bytes_text(launch["written"]), operations, *bounds]
        )
    return lines + table(head, cells) + [""]


def by_parts_lines(steps):
    """Which of the two times of the step with a goal is predicted, and why."""
    of = BY_PARTS
    step = next((step for step in steps if (step["precision"], step["batch"]) == (of["precision"], of["batch"])), None)
    if step is None:
        return []
    launches, what = step["launches"], f"{NAMES[of['precision']]} {of['batch']} on an {of['card']}"
    predicted = roofline.predicted_of_step(launches, of["precision"], of["card"])
    lines = [
        f"- **Predicted is {1e3 * predicted:.3f} ms** for {what}, not the {1e3 * of['seconds']:.3f} ms of an estimate by parts: only the former follows from",
        "  what is counted here (launches, bytes, operations) with rates and floors that have a source. It is what the step takes if every",
        "  launch reaches its bound, which at this batch size none may: a grid that fills the GPU once or less, and libraries' kernels",
        f"  below the peak rate. The estimate by parts, of the step when it had {of['launches']} launches, guesses how far each kernel stays from its bound;",
    ]
    share = roofline.share_of_bounds(launches, of["precision"], of["card"], of["seconds"]) if len(launches) == of["launches"] else None
    if share is None:
        return [*lines, "  it is what may be expected, and no prediction."]
    return [*lines, f"  it is what these launches take at {share:.2f} of their bounds: what may be expected, and no prediction."]


def page(steps):
    """The text of gpu-predicted.md."""
    floors = roofline.PUBLISHED
    rates = "; ".join(
        f"{card}: {rates['bytes'] / 1e12:.1f} TB/s, {rates['bfloat16'] / 1e12:.0f} TFLOP/s in bf16 and half, {rates['tf32'] / 1e12:.0f} in TF32, "
        f"{rates['float'] / 1e12:.0f} in float"
        for card, rates in roofline.CARDS.items()
    )
    head = ["step", "launches", "of libraries", "GB", "GFLOP"]
    for card in roofline.CARDS:
        head += [f"{card}: bounds, ms", f"{card}: predicted, ms"]
    lines = [
        "# Predicted times of a training step on a GPU",
        "",
        "Written by `cmake --build build/dev --target gpu_predicted_page`. **Nothing here was measured on a GPU**: it is a prediction, so that",
        "the first card's figures are a check of it. The step is the captured one of the tutorial's network (plain SGD, one replica, batches",
        "in the GPU's memory), as `tests/gpu/card/bench/step.cu` measures it. The launches are those that an emulated GPU runs; a test compares",
        "them with this page.",
        "",
        "- *MB read*, *MB written*: of a kernel of Cupola, the memory that it touches while it runs on the emulator, each page of 4 KiB",
        "  (16 KiB at batch 2048) counted once; of a call of cuDNN or cuBLASLt, its tensors. *GFLOP*: the additions and multiplications of",
        "  the libraries' calls. Not counted, so that more time is to be expected: the products of linear layers in a kernel of Cupola, which",
        "  are 0.9 GFLOP at batch 128, and the waits of the blocks of a cooperative kernel for each other, up to 9 in a step.",
        "- *Padded*: the step whose plan of the first convolution pads the channels of the images to 8, which the card's times decide.",
        "- The gradients of a layer's weights and of its input are branches of the graph, which may run beside each other; the sums are those",
        "  of one launch after another.",
        "- A launch's *bound* is the longer of the times of its bytes and of its operations, at the rates that are reached:",
        f"  {rates}.",
        "  Data that an earlier kernel left in the cache, as most of it at batch 128, is read faster. The libraries' calls may be several",
        "  kernels, and may not reach the rate of tensor cores.",
        f"- *Predicted*: at least {1e6 * floors.kernel:.1f} us per launch and {1e6 * floors.gap:.1f} us to the next one of a graph,",
        f"  {floors.source}. `tests/gpu/run` measures both floors first, by a chain of",
        "  empty kernels in a graph, and judges a card by its own.",
        *by_parts_lines(steps),
        "",
        *table(head, summary_rows(steps)),
        "",
    ]
    shown = []
    for step in steps:
        if step in shown:
            continue
        same = [other for other in steps if other["batch"] == step["batch"] and other["launches"] == step["launches"]]
        shown += same
        lines += step_lines(step, [other["precision"] for other in same if other is not step])
    return "\n".join(lines).rstrip() + "\n"


def difference(kept, current):
    """What differs between two lists of launches, in any order; empty if nothing does."""

    def key(launch):
        return (launch["name"], launch["library"], launch["read"], launch["written"], launch["operations"])

    before, now = sorted(map(key, kept)), sorted(map(key, current))
    gone, new = list(before), []
    for each in now:
        if each in gone:
            gone.remove(each)
        else:
            new.append(each)
    return [f"- {each}" for each in gone] + [f"+ {each}" for each in new]


def without_bytes(launches):
    return [launch if launch["library"] else {**launch, "read": 0, "written": 0} for launch in launches]


def moved_by_kernels(launches):
    """How many kernels move how many bytes."""
    return collections.Counter((launch["read"], launch["written"]) for launch in launches if not launch["library"])


def assumed():
    """What the times are computed with, beside the launches."""
    return {"rates": roofline.CARDS, "floors": dataclasses.asdict(roofline.PUBLISHED)}


def write(folder, steps):
    (folder / "gpu-predicted.json").write_text(json.dumps({**assumed(), "steps": steps}, indent=1) + "\n")
    (folder / "gpu-predicted.md").write_text(page(steps))


def check(program, folder):
    path = folder / "gpu-predicted.json"
    found = json.loads(path.read_text())
    steps = found.pop("steps")
    again = f"{path} is not of these launches; write it again: cmake --build BUILD --target gpu_predicted_page"
    if [(step["precision"], step["batch"]) for step in steps] != [(p, b) for p in PRECISIONS for b in BATCHES]:
        sys.exit(f"{again}\nit has other steps")
    for step in steps:
        whole = step["batch"] == BATCHES[0] and step["precision"] not in KERNELS_OF
        current = launches_of(program, step["precision"], step["batch"], *([] if whole else ["names"]))
        differs = difference(step["launches"] if whole else without_bytes(step["launches"]), without_bytes(current) if not whole else current)
        if step["batch"] == BATCHES[0] and not whole:
            other = next(each for each in steps if (each["precision"], each["batch"]) == (KERNELS_OF[step["precision"]], step["batch"]))
            differs += [f"- {moved} bytes by a kernel, which none moves in {other['precision']}"
                        for moved in moved_by_kernels(step["launches"]) - moved_by_kernels(other["launches"])]
        if differs:
            sys.exit("\n".join([f"{step['precision']}, batch {step['batch']}: {again}", *differs]))
    if found != assumed() or (folder / "gpu-predicted.md").read_text() != page(steps):
        sys.exit(f"{folder}/gpu-predicted.md is not of {path} and the rates and floors in roofline.py; write both again")
    print(f"{len(steps)} steps, {sum(len(step['launches']) for step in steps)} launches, as on the page")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        return check(arguments.program, arguments.folder)
    steps = [
        {"precision": precision, "batch": batch, "launches": launches_of(arguments.program, precision, batch)}
        for precision in PRECISIONS
        for batch in BATCHES
    ]
    write(arguments.folder, steps)


if __name__ == "__main__":
    main()
