# SPDX-License-Identifier: Apache-2.0
"""What a training step costs whose replicas have parameters of their own: its time over that of ConcatMean, by turns; the same with one of
two devices half as fast, where asynchronous replicas do not wait for it; and between two hosts at 100 Mbit/s, over that of MpiAllReduce.

    run own-parameters [--rounds 10] [--batch 32] [--no-save]

One replica on each thread, the tutorial's network. The time of a step is the mean over whole periods: most steps have no agreement.
Writes a page and its figures to docs/measurements/."""

import argparse
import copy
import multiprocessing
import os
import statistics
import sys

import hosts
import machine
import processes
import turns

LONGEST = 16
RATE = "100mbit"
# The words of training_step: the title, and the largest ratio.
KINDS = {
    "local-sgd=1": ("local SGD, every step", 1.2),
    "local-sgd=16": ("local SGD, every 16 steps", 1.1),
    "diloco=1": ("DiLoCo, every step", 1.2),
    "diloco=16": ("DiLoCo, every 16 steps", 1.1),
    "elastic=1": ("elastic averaging, every step", 1.2),
    "elastic=16": ("elastic averaging, every 16 steps", 1.1),
}
ASYNCHRONOUS = f"asynchronous={LONGEST}"


def mean_of_periods(seconds):
    """The mean of the steps of whole periods; a turn has at least one."""
    whole = len(seconds) // LONGEST * LONGEST
    if whole == 0:
        raise SystemExit(f"a turn had {len(seconds)} steps, less than a period of {LONGEST}: use a longer --turn")
    return statistics.mean(seconds[:whole])


def by_turns(options, kinds, quiet, replicas):
    """The programs' descriptions, and the seconds of a step of each kind in each round."""
    commands = {kind: turns.cupola_step("lrn", "float", options.batch, 1, replicas, *filter(None, [kind])) for kind in ("", *kinds)}
    described, rounds = turns.take(options, commands, quiet)
    if "missing" in described:
        raise SystemExit("; ".join(f"{kind}: {why}" for kind, why in described["missing"].items()))
    return described, {kind: [mean_of_periods(answer["seconds"]) for answer in answers] for kind, answers in rounds.items()}


def spin(processor):
    os.sched_setaffinity(0, {processor})
    while True:
        pass


def beside_a_busy_processor(options):
    """By turns, while another program uses the second processor as much as the device there does."""
    options = copy.copy(options)
    options.disturbed = float(os.cpu_count())  # the other program is meant to be there
    other = multiprocessing.Process(target=spin, args=(sorted(os.sched_getaffinity(0))[1],), daemon=True)
    other.start()
    try:
        return by_turns(options, (ASYNCHRONOUS,), turns.Quiet(), 2)
    finally:
        other.kill()


def between_hosts(options, quiet):
    """The seconds of a step with MpiAllReduce and with Periodic around it in each round; the reason instead if there are no hosts."""
    if reason := hosts.why_not():
        return reason
    both = hosts.Hosts()
    key = "hosts-periodic"
    command = both.mpirun(1, [processes.PROGRAM, "step", options.batch, 1, "float", f"job:{key}"])
    try:
        job = processes.Job(key, command).ready()
    except (turns.Missing, OSError) as error:
        return str(error)
    both.limit(RATE)
    seconds = {f"sums {processes.DEFAULT}": [], "periodic": []}
    for number in range(options.rounds):
        for name, all_of_it in seconds.items():
            machine.wait_until_quiet(options.disturbed, options.wait, 0.2)
            all_of_it.append(mean_of_periods(job.work(f"{name} {LONGEST * (4 if name == 'periodic' else 1)}")["seconds"]))
        print(f"two hosts, round {number + 1} of {options.rounds}: " + ", ".join(f"{1e3 * s[-1]:.4g} ms" for s in seconds.values()), flush=True)
    job.stop()
    return seconds


def main():
    parser = argparse.ArgumentParser(prog="run own-parameters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="images of a replica")
    parser.add_argument("--no-save", action="store_true")
    turns.add_options(parser)
    parser.set_defaults(rounds=10, turn=2.0)
    options = parser.parse_args()
    os.environ.update(processes.ROOT_MAY_RUN)
    quiet, replicas = turns.Quiet(), options.threads
    linked = between_hosts(options, quiet)
    described, seconds = by_turns(options, KINDS, quiet, replicas)
    over = {kind: turns.ratios(seconds[kind], seconds[""]) for kind in KINDS}
    bars = [machine.bar(title, over[kind], most=most, digits=3) for kind, (title, most) in KINDS.items()]
    _, uneven = beside_a_busy_processor(options)
    gained = turns.ratios(uneven[""], uneven[ASYNCHRONOUS])
    gains = [machine.bar("one of two devices half as fast: asynchronous elastic averaging, images/s over `ConcatMean`'s", gained, least=1.35)]
    title = f"two hosts at {RATE}: `Periodic<MpiAllReduce>` every {LONGEST} steps, images/s over `MpiAllReduce`'s"
    faster = None if isinstance(linked, str) else turns.ratios(*linked.values())
    gains.append(machine.bar(title, faster, least=5))
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
        "A device is half as fast because another program computes on its processor all the time. Two hosts are two network namespaces of this "
        f"machine with one replica of {options.batch} images each, whose link is limited to {RATE}"
        + (f" ({linked})." if isinstance(linked, str) else f": a step takes {' and '.join(f'{1e3 * statistics.median(s):.1f} ms' for s in linked.values())}."),
        "",
        *machine.table(["", "bound", "measured", "met"], gains),
        "",
    ]
    figures = {
        "machine": computer,
        "quiet": quiet.report(),
        "described": described,
        "seconds": seconds,
        "over": over,
        "uneven": uneven,
        "gained": gained,
        "linked": linked,
        "faster": faster,
    }
    machine.publish(options, "own-parameters", "\n".join(page), figures)


if __name__ == "__main__":
    sys.exit(main())
