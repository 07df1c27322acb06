# SPDX-License-Identifier: Apache-2.0
"""The U-Net: a training step compared by turns with PyTorch in its fastest layout, eager or compiled; and the loss of a training of both by
the same recipe on the same images (shapes.hpp).

Usage: run unet [--batch N] [--steps N] [--no-save] and the options of turns.py
"""

import argparse
import statistics
import sys

import machine
import turns

LEAST_RATIO = 1.6
PYTHON, SCRIPT, PROGRAM = machine.PEERS / "torch/bin/python", turns.HERE / "peers/torch_unet.py", turns.BUILD / "unet"
MODES = {
    f"{layout}, {'compiled' if compiled else 'eager'}": {"LAYOUT": layout, **({"COMPILE": "1"} if compiled else {})}
    for layout in ("channels_last", "contiguous")
    for compiled in (False, True)
}


def main():
    parser = argparse.ArgumentParser(prog="run unet")
    turns.add_options(parser)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=600, help="steps of the training; 0 for none")
    parser.add_argument("--no-save", action="store_true", help="print the results, but do not write docs/measurements")
    options = parser.parse_args()
    computer, quiet, words = machine.describe(), turns.Quiet(), (options.batch, options.threads)
    programs, rounds = turns.take(options, {"cupola": [PROGRAM, *words], "torch": turns.Modes([PYTHON, SCRIPT, *words], MODES)}, quiet)
    seconds = {key: turns.step_seconds(r) for key, r in rounds.items()}
    ratio = turns.ratios(seconds["torch"], seconds["cupola"])
    results = {
        "programs": programs,
        "milliseconds": {key: turns.spread([1e3 * s for s in values]) for key, values in seconds.items()},
        "ratio": ratio,
    }
    asked = [machine.bar("a step over PyTorch's fastest", ratio, least=LEAST_RATIO)]
    if options.steps > 0:
        for key, command in (("cupola", [PROGRAM]), ("torch", [PYTHON, SCRIPT])):
            answer = turns.json_of(options, quiet, [*command, "train", options.steps, *words])
            results[f"{key}_loss"] = {"last": statistics.mean(answer["losses"][-100:]), "held_out": answer["held_out"]}
        own, peer = results["cupola_loss"], results["torch_loss"]
        bound = round(1.05 * peer["last"], 4)
        asked.append(machine.bar("the mean of the last 100 steps' losses, at most 5% above PyTorch's", own["last"], most=bound, digits=4))
        # The loss of one state of the parameters; it varies between seeds by a tenth.
        asked.append(machine.bar("the loss of 256 other images", own["held_out"], digits=4))
        asked.append(machine.bar("PyTorch's", peer["held_out"], digits=4))
    text = [
        "# A U-Net",
        "",
        f"Written by `tests/benchmarks/run unet`. `UNet<64, 64, 1, 4>`: images of 64 x 64 with circles, squares and triangles, the class of "
        f"each pixel, cross-entropy, Adam at a rate of 0.001, batches of {options.batch}, {options.threads} threads. A step is that of "
        f"PyTorch's fastest of both layouts, eager and compiled; median (least to most) of {options.rounds} rounds. The training has "
        f"{options.steps} steps, each on other images, the same for both.",
        "",
        *machine.lines(computer),
        "",
        *machine.table(
            ["program", "how", "ms/step", "peak MB"],
            [
                [f"{p['name']} {p['version']}", p["how"], turns.text_of(results["milliseconds"][key], 1), f"{p['peak_megabytes']:.0f}"]
                for key, p in programs.items()
                if key in results["milliseconds"]
            ],
        ),
        "",
        *machine.table(["what", "asked", "measured", "met"], asked),
        "",
    ]
    figures = {"machine": computer, "options": vars(options), "quiet": quiet.report(), "figures": results}
    machine.publish(options, "unet", "\n".join(text), figures)


if __name__ == "__main__":
    sys.exit(main())
