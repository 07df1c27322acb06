# SPDX-License-Identifier: Apache-2.0
"""ResNet-44 in two parts of one thread each: the time of a step over that of its timetable with measured times of the parts, images/s over
the whole network on two threads, and the memory as planned and in use, by turns. The cut is at layer2.0, which divides the multiply-adds,
and, for which of them divides the times, also one and two blocks later.

    run pipeline [--rounds 10] [--batch 32] [--no-save]

A step has 8 batches, whose gradients are added. In float, at layer2.0 by both timetables. Writes a page and its figures to docs/measurements/."""

import argparse
import statistics
import sys

import machine
import turns

BATCHES = 8
CUTS = ("1F1B layer2.0", "GPipe layer2.0", "1F1B layer2.1", "1F1B layer2.2")
# The largest time of a step over that of its timetable, the least images/s over the whole network's, the largest memory over the planned.
MOST_TIME, LEAST_SPEED, MOST_MEMORY = 1.1, 0.85, 1.1


def main():
    parser = argparse.ArgumentParser(prog="run pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="images of one of the 8 batches")
    parser.add_argument("--no-save", action="store_true")
    turns.add_options(parser)
    parser.set_defaults(rounds=10, turn=4.0)
    options = parser.parse_args()
    if options.threads != 2:
        raise SystemExit("the two parts have one thread each: --threads must be 2")
    quiet = turns.Quiet()
    commands = {kind: [turns.BUILD / "pipeline", kind, options.batch] for kind in ("whole", "times", *CUTS)}
    described, rounds = turns.take(options, commands, quiet)
    if "missing" in described:
        raise SystemExit("; ".join(f"{kind}: {why}" for kind, why in described["missing"].items()))
    seconds = {kind: turns.step_seconds(answers) for kind, answers in rounds.items()}
    losses = {kind: [answer["loss"] for answer in answers] for kind, answers in rounds.items()}
    bars, figures = [], {}
    for name in CUTS:
        parts = {way: [statistics.median(answer[name][way][k] for answer in rounds["times"]) for k in range(2)] for way in ("forward", "backward")}
        larger = max(forward + backward for forward, backward in zip(*parts.values())) / sum(map(sum, parts.values()))
        planned = [answer[name]["seconds"] for answer in rounds["times"]]
        allowed = turns.ratios(seconds["whole"], planned)
        over_timetable = turns.ratios(seconds[name], planned)
        speed = turns.ratios(seconds["whole"], seconds[name])
        memory = described[name]["used"] / described[name]["planned"]
        bars.append(machine.bar(f"{name}: the longer part, of the passes' time", larger, digits=3))
        bars.append(machine.bar(f"{name}: time of a step, over the timetable's", over_timetable, most=MOST_TIME, digits=3))
        bars.append(machine.bar(f"{name}: images/s that the timetable allows, over those of the whole network", allowed, digits=3))
        bars.append(machine.bar(f"{name}: images/s, over those of the whole network on two threads", speed, least=LEAST_SPEED, digits=3))
        bars.append(machine.bar(f"{name}: memory in use, over the planned", memory, most=MOST_MEMORY))
        bars.append(machine.bar(f"{name}: memory as planned", described[name]["planned"] / 1e6, digits=1, unit=" MB"))
        figures[name] = {"timetable": planned, "allowed": allowed, "over_timetable": over_timetable, "speed": speed, "memory": memory, "parts": parts}
    bars.append(machine.bar("the whole network: memory as planned", described["whole"]["planned"] / 1e6, digits=1, unit=" MB"))
    parts = figures[CUTS[0]]["parts"]
    computer = machine.describe()
    page = [
        "# A network in two parts",
        "",
        f"Written by `tests/benchmarks/run pipeline`. `SplitAt<ResNet<44>, \"layer2.0\">`, and the same network cut one and two blocks later, in float on "
        f"two devices of one thread, {BATCHES} batches of "
        f"{options.batch} images per step, whose gradients are added; beside it the whole network on one device of two threads, with the same "
        f"batches. Ratios by turns in the same round, median (least to most) of {options.rounds} rounds. The timetable is evaluated with the times of the "
        f"passes of each part, measured in the whole network on two devices of one thread that are both at work; it has no time for the update, and "
        f"none for copies. A batch takes "
        + " and ".join(
            f"{1e3 * parts['forward'][k]:.1f} ms forward and {1e3 * parts['backward'][k]:.1f} ms backward in part {k + 1}" for k in range(2)
        )
        + f" from `layer2.0` on; a step of the whole network takes {1e3 * statistics.median(seconds['whole']):.1f} ms. The memory in use is that of the process after its "
        f"first steps, less what it was before the training was made. Other processes used at most {quiet.busiest:.0%} of the machine.",
        "",
        *machine.lines(computer),
        "",
        *machine.table(["two parts", "bound", "measured", "met"], bars),
        "",
    ]
    figures = {"machine": computer, "quiet": quiet.report(), "described": described, "seconds": seconds, "losses": losses, **figures}
    machine.publish(options, "pipeline", "\n".join(page), figures)


if __name__ == "__main__":
    sys.exit(main())
