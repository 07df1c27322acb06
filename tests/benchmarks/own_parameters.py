# SPDX-License-Identifier: Apache-2.0
"""What a training step costs whose replicas have parameters of their own: its time over that of ConcatMean, by turns.

    run own-parameters [--rounds 10] [--batch 32] [--no-save]

One replica on each thread, the tutorial's network. The time of a step is the mean over whole periods: most steps have no agreement.
Writes a page and its figures to docs/measurements/."""

import argparse
import json
import statistics
import sys

import machine
import turns

LONGEST = 16
# The words of training_step: the title, and the largest ratio.
KINDS = {
    "local-sgd=1": ("local SGD, every step", 1.2),
    "local-sgd=16": ("local SGD, every 16 steps", 1.1),
    "diloco=1": ("DiLoCo, every step", 1.2),
    "diloco=16": ("DiLoCo, every 16 steps", 1.1),
    "elastic=1": ("elastic averaging, every step", 1.2),
    "elastic=16": ("elastic averaging, every 16 steps", 1.1),
}


def mean_of_periods(seconds):
    """The mean of the steps of whole periods; a turn has at least one."""
    whole = len(seconds) // LONGEST * LONGEST
    if whole == 0:
        raise SystemExit(f"a turn had {len(seconds)} steps, less than a period of {LONGEST}: use a longer --turn")
    return statistics.mean(seconds[:whole])


def main():
    parser = argparse.ArgumentParser(prog="run own-parameters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="images of a replica")
    parser.add_argument("--no-save", action="store_true")
    turns.add_options(parser)
    parser.set_defaults(rounds=10, turn=2.0)
    options = parser.parse_args()
    quiet, replicas = turns.Quiet(), options.threads
    commands = {kind: turns.cupola_step("lrn", "float", options.batch, 1, replicas, *filter(None, [kind])) for kind in ("", *KINDS)}
    described, rounds = turns.take(options, commands, quiet)
    if "missing" in described:
        raise SystemExit("; ".join(f"{kind}: {why}" for kind, why in described["missing"].items()))
    seconds = {kind: [mean_of_periods(answer["seconds"]) for answer in answers] for kind, answers in rounds.items()}
    over = {kind: turns.ratios(seconds[kind], seconds[""]) for kind in KINDS}
    bars = [machine.bar(title, over[kind], most=most, digits=3) for kind, (title, most) in KINDS.items()]
    computer = machine.describe()
    page = [
        "# A step of replicas with parameters of their own",
        "",
        f"Written by `tests/benchmarks/run own-parameters`. The tutorial's network in float, {replicas} replicas of {options.batch} images on devices of "
        f"one thread, by turns: the time of a step over that of `ConcatMean` in the same round, median (least to most) of {options.rounds} rounds. A time "
        f"is the mean over whole periods of {LONGEST} steps. `ConcatMean`: {1e3 * statistics.median(seconds['']):.2f} ms a step. Other processes used at "
        f"most {quiet.busiest:.0%} of the machine.",
        "",
        *machine.lines(computer),
        "",
        *machine.table(["step over ConcatMean's", "bound", "measured", "met"], bars),
        "",
    ]
    print("\n".join(page))
    if options.no_save:
        return
    (machine.MEASUREMENTS / "own-parameters.md").write_text("\n".join(page))
    figures = {"machine": computer, "quiet": quiet.report(), "described": described, "seconds": seconds, "over": over}
    (machine.MEASUREMENTS / "own-parameters.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
