# SPDX-License-Identifier: Apache-2.0
"""What computing every block again in backward costs and saves: the time of a training step and the memory of its activations, over those
of the same network without it, by turns.

    run recompute [--rounds 10] [--batch 128] [--unet-batch 32] [--no-save]

ResNet-44 and the U-Net of the benchmarks, in float. Writes a page and its figures to docs/measurements/."""

import argparse
import statistics
import sys

import machine
import turns

# The title, and the largest ratios of the activations' bytes and of the time.
NETWORKS = {"resnet44": ("ResNet-44", 0.45, 1.35), "unet": ("the U-Net", 0.70, 1.35)}


def command(network, options, *words):
    if network == "resnet44":
        return turns.cupola_step(network, "float", options.batch, options.threads, *words)
    return [turns.BUILD / "unet", options.unet_batch, options.threads, *words]


def main():
    parser = argparse.ArgumentParser(prog="run recompute", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128, help="images of ResNet-44")
    parser.add_argument("--unet-batch", type=int, default=32, help="images of the U-Net")
    parser.add_argument("--no-save", action="store_true")
    turns.add_options(parser)
    parser.set_defaults(rounds=10, turn=2.0)
    options = parser.parse_args()
    quiet, bars, figures, seconds_of = turns.Quiet(), [], {}, []
    for network, (title, most_memory, most_time) in NETWORKS.items():
        commands = {"plain": command(network, options), "again": command(network, options, "recompute")}
        described, rounds = turns.take(options, commands, quiet)
        if "missing" in described:
            raise SystemExit("; ".join(f"{title}, {kind}: {why}" for kind, why in described["missing"].items()))
        seconds = {kind: turns.step_seconds(answers) for kind, answers in rounds.items()}
        losses = {kind: [answer["loss"] for answer in answers] for kind, answers in rounds.items()}
        memory = described["again"]["activations"] / described["plain"]["activations"]
        over = turns.ratios(seconds["again"], seconds["plain"])
        bars.append(machine.bar(f"{title}: activations", memory, most=most_memory))
        bars.append(machine.bar(f"{title}: time of a step", over, most=most_time, digits=3))
        seconds_of.append(f"{title} {1e3 * statistics.median(seconds['plain']):.1f} ms")
        figures[network] = {"described": described, "seconds": seconds, "losses": losses, "memory": memory, "over": over}
    computer = machine.describe()
    page = [
        "# Blocks that are computed again in backward",
        "",
        f"Written by `tests/benchmarks/run recompute`. Every block of ResNet-44 (a batch of {options.batch}) and of the U-Net ({options.unet_batch}) by "
        f"`Recompute`, in float on {options.threads} threads, over the same network without it: the bytes of the activations as `MemoryReport` has them, "
        f"and the time of a step by turns in the same round, median (least to most) of {options.rounds} rounds. A step without it: "
        f"{', '.join(seconds_of)}. Other processes used at most {quiet.busiest:.0%} of the machine.",
        "",
        *machine.lines(computer),
        "",
        *machine.table(["with recomputation, over that without", "bound", "measured", "met"], bars),
        "",
    ]
    machine.publish(options, "recompute", "\n".join(page), {"machine": computer, "quiet": quiet.report(), **figures})


if __name__ == "__main__":
    sys.exit(main())
