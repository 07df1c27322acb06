# SPDX-License-Identifier: Apache-2.0
"""Several processes by MPI: the exchange of gradients compared with MPI's and Gloo's, and training steps compared with one process and with
PyTorch's DistributedDataParallel. Two processes on this machine, and on two hosts made of network namespaces (hosts.py), with and without
a limit of 1 Gbit/s. Writes docs/measurements/processes.md and processes.json, and scaling.md, which follows from them.

    run processes [--rounds N] [--turn SECONDS] [--quick] [--no-save]

All programs are started once and take turns. A time is that of the slowest process; a ratio is of the medians of two turns in one round. What
is compared with one process differs by less than the machine's speed between two distant turns: it takes many short turns of its own.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import hosts
import machine
import turns

PROGRAM = turns.BUILD / "processes"
ELEMENTS, SMALL = 1_068_298, 16_384  # the gradient of the tutorial's network, and 64 KB
BATCH, BATCH_OF_HOSTS = 64, 256
RATE = "1gbit"
BUCKETS = (0, 1 << 18, 1 << 20)  # MpiAllReduce's bucket_bytes
DEFAULT = BUCKETS[1]  # without a value
EXCHANGES = ("allreduce", "in-place", "iallreduce", "shared", "messages", "sum", "hash")
# Compared in turns of their own: rounds, and seconds.
BESIDE_ONE = ("one process", "node float alone", "node float shared", f"node float sums {DEFAULT}")
ROUNDS_BESIDE_ONE, TURN_BESIDE_ONE = 121, 0.15
DDP_MODES = {
    "eager, channels_last": {"LAYOUT": "channels_last"},
    "eager, contiguous": {"LAYOUT": "contiguous"},
    "compiled, channels_last": {"LAYOUT": "channels_last", "COMPILE": "1"},
}
ROOT_MAY_RUN = dict.fromkeys(
    ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"
)


def processes_named(name):
    """The processes that have `name` among their arguments."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if name.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                yield int(folder.name)
        except OSError:
            continue


class Job(turns.Program):
    """A program of several processes, which are found by the last argument: the job's key."""

    def __init__(self, key, command, **environment):
        super().__init__(key, command, 1, **ROOT_MAY_RUN, **environment)
        self.name = f"job:{key}"

    def seconds(self):
        used = 0.0
        for pid in {self.process.pid, *processes_named(self.name)}:
            try:
                used += machine.process_seconds(pid)
            except (OSError, IndexError):
                continue
        return used


class Task:
    """What a job does in a turn: `words` is the beginning of the line that asks for it, `before` what is done before each turn."""

    def __init__(self, job, words="", before=None):
        self.job, self.words, self.before = job, words, before or (lambda: None)

    def work(self, count):
        self.before()
        return self.job.work(f"{self.words} {count}".strip())


def here(processes, *words):
    """Each process has a core of its own, as mpirun binds two by default and as one process binds its threads, if there are enough."""
    bound = "core" if processes <= len(os.sched_getaffinity(0)) else "none"
    return ["mpirun", "--oversubscribe", "--bind-to", bound, "-n", processes, PROGRAM, *words]


def start_tasks(options, missing):
    """All tasks by name, and the jobs."""
    tasks, jobs = {}, {}

    def start(key, command, named=True, **environment):
        try:
            return Job(key, [*command, f"job:{key}"] if named else command, **environment).ready()
        except (turns.Missing, OSError) as error:
            missing[key] = str(error)
            print(f"{key} is skipped: {error}", flush=True)
            return None

    def add(key, job, prefix, words, before=None):
        if job is not None:
            jobs[key] = job
            tasks.update({f"{prefix} {word}".strip(): Task(job, word, before) for word in words})

    exchanges = [f"{name} {elements}" for elements in (ELEMENTS, SMALL) for name in EXCHANGES]
    add("exchange", start("exchange", here(2, "exchange", ELEMENTS)), "node", exchanges)
    for precision in ("float", "bfloat16"):
        key = f"steps-{precision}"
        add(key, start(key, here(2, "step", BATCH, 1, precision)), f"node {precision}", ("alone", "shared", "messages", f"sums {DEFAULT}"))
    add("steps-4", start("steps-4", here(4, "step", BATCH, 1, "float")), "four", ("alone", "shared"))
    one = turns.cupola_step("lrn", "float", BATCH, 1, 2, "winograd")
    add("one-process", start("one-process", one, named=False), "one process", ("",))
    torch = [machine.PEERS / "torch/bin/python", turns.HERE / "peers/torch_ddp.py"]
    add("gloo", start("gloo", [*torch, "allreduce", ELEMENTS]), "node gloo", ("",))
    for precision in ("float", "bfloat16"):
        add(f"ddp-{precision}", fastest_ddp(options, start, [*torch, "step", precision, BATCH]), f"ddp {precision}", ("",))
    if reason := hosts.why_not():
        missing["hosts"] = reason
        return tasks, jobs
    both = hosts.Hosts()
    steps = ("alone", "messages", *(f"sums {size}" for size in BUCKETS))
    for key, words, names in (
        ("hosts-exchange", ("exchange", ELEMENTS), [name for name in exchanges if not name.startswith(("shared", "hash"))]),
        ("hosts-steps", ("step", BATCH_OF_HOSTS, 1, "float"), steps),
    ):
        job = start(key, both.mpirun(1, [PROGRAM, *words, f"job:{key}"]), named=False)
        add(key, job, "hosts", names, lambda: both.limit(None))
        add(key, job, f"hosts {RATE}", names, lambda: both.limit(RATE))
    key = "hosts-steps-4"
    job = start(key, both.mpirun(2, [PROGRAM, "step", BATCH, 1, "float", f"job:{key}"]), named=False)
    add(key, job, "four on hosts", ("alone", "messages"), lambda: both.limit(None))
    add(key, job, f"four on hosts {RATE}", ("messages",), lambda: both.limit(RATE))
    return tasks, jobs


def fastest_ddp(options, start, command):
    """PyTorch's job in its fastest mode; None if there is none."""
    best = None
    for number, (mode, environment) in enumerate(DDP_MODES.items()):
        job = start(f"ddp-{command[-2]}-{number}", command, **environment)
        if job is None:
            continue
        job.work(2)
        took = statistics.median(job.work(5)["seconds"])
        print(f"{command[-2]}, {mode}: {1e3 * took:.3g} ms", flush=True)
        job.described["how"] += f", {mode}"
        job.described["milliseconds"] = 1e3 * took
        slower = job
        if best is None or took < 1e-3 * best.described["milliseconds"]:
            best, slower = job, best
        if slower is not None:
            slower.stop()
    return best


def take(options, tasks, quiet, count, turn):
    """The median of each task in each of `count` rounds of turns of `turn` seconds."""
    amounts = {name: max(5, min(2000, round(turn / statistics.median(task.work(3)["seconds"])))) for name, task in tasks.items()}
    rounds = {name: [] for name in tasks}
    names = list(tasks)
    for number in range(count):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            task = tasks[name]
            for attempt in range(options.patience + 1):
                machine.wait_until_quiet(options.disturbed, options.wait, 0.2)
                busy, steal = machine.busy_seconds()
                mine, start = task.job.seconds(), time.perf_counter()
                result = task.work(amounts[name])
                elapsed = (time.perf_counter() - start) * os.cpu_count()
                busy_after, steal_after = machine.busy_seconds()
                others = max(0.0, busy_after - busy - (task.job.seconds() - mine)) / elapsed
                if others <= options.disturbed or attempt == options.patience:
                    break
                quiet.repeated += 1
            quiet.note(others, (steal_after - steal) / elapsed)
            rounds[name].append(statistics.median(result["seconds"]))
        print(f"round {number + 1} of {count}", flush=True)
    return rounds


def smaller(*lists):
    return [min(values) for values in zip(*lists)]


def figures_of(rounds, beside_one):
    """The ratios that are asked for, from the medians of the rounds."""
    found = {}

    def ratio(name, above, below):
        if all(key in rounds for key in (*above, *below)):
            found[name] = turns.ratios(smaller(*(rounds[key] for key in above)), smaller(*(rounds[key] for key in below)))

    for where in ("node", "hosts", f"hosts {RATE}"):
        fastest = [f"{where} allreduce {ELEMENTS}", f"{where} in-place {ELEMENTS}"]
        ratio(f"{where} exchange", [f"{where} shared {ELEMENTS}" if where == "node" else f"{where} messages {ELEMENTS}"], fastest)
        ratio(f"{where} sum", [f"{where} sum {ELEMENTS}"], fastest)
    for name in BESIDE_ONE[1:]:
        if name in beside_one and "one process" in beside_one:
            found[f"one process / {name}"] = turns.ratios(beside_one["one process"], beside_one[name])
    ratio("ddp float", ["ddp float"], ["node float shared"])
    ratio("ddp bfloat16", ["ddp bfloat16"], ["node bfloat16 shared"])
    for where in ("hosts", f"hosts {RATE}"):
        keys = [f"{where} sums {DEFAULT}", f"{where} alone", f"{where} allreduce {ELEMENTS}", f"{where} in-place {ELEMENTS}"]
        if all(key in rounds for key in keys):
            step, alone, sum_, in_place = (rounds[key] for key in keys)
            found[f"{where} overlap"] = turns.ratios(step, [1.05 * (a + 0.2 * min(s, i)) for a, s, i in zip(alone, sum_, in_place)])
    return found


ASKED = [
    ("4.27 MB on one machine, `MpiConcatMean` over the faster of `MPI_Allreduce` in place and not", "node exchange", {"most": 0.4}),
    ("4.27 MB between two hosts, the same", "hosts exchange", {"most": 1.25}),
    (f"the same at {RATE}", f"hosts {RATE} exchange", {}),
    ("images/s of two processes over one process, both with two replicas of one thread, `MpiConcatMean`", f"one process / {BESIDE_ONE[2]}", {"least": 0.97}),
    ("the same with `MpiAllReduce`", f"one process / {BESIDE_ONE[3]}", {}),
    ("the limit of both: two processes that do not exchange anything", f"one process / {BESIDE_ONE[1]}", {}),
    ("images/s of two processes over PyTorch's DDP with Gloo, float", "ddp float", {"least": 3.0}),
    ("the same in bfloat16", "ddp bfloat16", {}),
    (f"a step of two hosts at {RATE} with `MpiAllReduce`, over 1.05 x (its computation + 0.2 x the all-reduce alone)", f"hosts {RATE} overlap", {"most": 1.0}),
    ("the same without a limit", "hosts overlap", {}),
]
NAMES = {
    "allreduce": "`MPI_Allreduce`",
    "in-place": "`MPI_Allreduce` in place",
    "iallreduce": "`MPI_Iallreduce`",
    "shared": "`MpiConcatMean`, memory in common",
    "messages": "`MpiConcatMean`, messages",
    "sum": "`MpiAllReduce`",
}


def page(results):
    rounds, figures, missing = results["seconds"], results["ratios"], results["missing"]

    def milliseconds(key, digits=3):
        return turns.text_of(turns.spread([1e3 * s for s in rounds[key]]), digits) if key in rounds else ""

    exchange_rows = [
        [title, *(milliseconds(f"{where} {name} {elements}") for where in ("node", "hosts", f"hosts {RATE}") for elements in (ELEMENTS, SMALL))]
        for name, title in NAMES.items()
    ]
    exchange_rows.append(["Gloo", milliseconds("node gloo"), "", "", "", "", ""])
    exchange_rows.append(
        ["hash of the parameters, in each process", *(milliseconds(f"node hash {elements}") for elements in (ELEMENTS, SMALL)), *[""] * 4]
    )

    def step_row(title, key, images):
        rate = turns.text_of(turns.spread([images / s for s in rounds[key]])) if key in rounds else ""
        return [title, milliseconds(key, 2), rate]

    steps = [
        step_row("1 process with 2 replicas, `ConcatMean`", "one process", 2 * BATCH),
        step_row("2 processes, each alone", "node float alone", 2 * BATCH),
        step_row("2 processes, `MpiConcatMean`", "node float shared", 2 * BATCH),
        step_row("2 processes, `MpiConcatMean`, messages", "node float messages", 2 * BATCH),
        step_row("2 processes, `MpiAllReduce`", f"node float sums {DEFAULT}", 2 * BATCH),
        step_row("2 processes, PyTorch's DDP", "ddp float", 2 * BATCH),
        step_row("2 processes, `MpiConcatMean`, bfloat16", "node bfloat16 shared", 2 * BATCH),
        step_row("2 processes, PyTorch's DDP, bfloat16", "ddp bfloat16", 2 * BATCH),
        step_row("4 processes, each alone", "four alone", 4 * BATCH),
        step_row("4 processes, `MpiConcatMean`", "four shared", 4 * BATCH),
    ]
    hosts_rows = [
        [title, milliseconds(f"hosts {key}", 2), milliseconds(f"hosts {RATE} {key}", 2)]
        for title, key in (
            ("each alone", "alone"),
            ("`MpiConcatMean`", "messages"),
            ("`MpiAllReduce`, one sum after the backward pass", f"sums {BUCKETS[0]}"),
            *((f"`MpiAllReduce`, buckets of at least {size >> 10} KB", f"sums {size}") for size in BUCKETS[1:]),
        )
    ]
    ddp = results["programs"].get("ddp-float", {})
    lines = [
        "# Several processes",
        "",
        "Written by `tests/benchmarks/run processes`. All programs are started once and take turns in one run; a time is that of the slowest "
        f"process, the median (least to most) of {results['options']['rounds']} rounds; a ratio is taken within a round. The tutorial's network, one thread per "
        f"replica, on one machine {BATCH} samples per replica in the ratios, between hosts {BATCH_OF_HOSTS}. Two hosts are two network namespaces of this machine "
        f"joined by virtual interfaces; at {RATE} `tc`'s tbf limits what each sends. Two processes beside one: {ROUNDS_BESIDE_ONE} rounds of turns of "
        f"{TURN_BESIDE_ONE} s, directly after each other, when the other programs have ended. Each of two processes is bound to a core, "
        "as `mpirun` does by default, and so are the threads of one process.",
        "",
        *machine.lines(results["machine"]),
        f"- {results['programs'].get('exchange', {}).get('mpi', 'MPI')}; PyTorch {ddp.get('version', 'missing')}: {ddp.get('how', '')}",
        f"- others used at most {results['quiet']['others_busy']:.0%} of the machine during a turn, its host took {results['quiet']['stolen']:.0%}; "
        f"{results['quiet']['turns_repeated']} turns were repeated; {results['run_seconds']:.0f} s in all",
        *(f"- not measured: {key}: {why.strip().splitlines()[-1]}" for key, why in missing.items()),
        "",
        *machine.table(["", "asked for", "measured", "met"], [machine.bar(title, figures.get(key), **limits) for title, key, limits in ASKED]),
        "",
        f"The limit at {RATE} needs a backward pass that is longer than the all-reduce, which takes 34 ms for 4.27 MB at least: it is measured with "
        f"{BATCH_OF_HOSTS} samples per replica.",
        "",
        "## The exchange of the gradients alone",
        "",
        "Milliseconds for 4.27 MB and for 64 KB, between two processes that start at the same time, each having written its gradient before. What is "
        "Cupola's contains the exchanges of the records and of the vote of a step. Before the records each process computes a hash of its parameters, "
        "by which a flipped bit is found.",
        "",
        *machine.table(["", "one machine, 4.27 MB", "64 KB", "two hosts, 4.27 MB", "64 KB", f"at {RATE}, 4.27 MB", "64 KB"], exchange_rows),
        "",
        "## Steps on one machine",
        "",
        f"{results['machine']['cores']} cores: four processes share them. With one process too each device updates its own copy of the parameters, so "
        "that two processes do the same work and add the hash and the exchange above; the rest is that each waits for the other. The medians here are "
        "of distant turns: the ratios above are more exact.",
        "",
        *machine.table(["", "ms per step", "images/s"], steps),
        "",
        "## Steps of two hosts",
        "",
        f"One replica of {BATCH_OF_HOSTS} samples on each.",
        "",
        *machine.table(["ms per step", "no limit", f"at {RATE}"], hosts_rows),
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="run processes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    turns.add_options(parser)
    parser.set_defaults(turn=0.4, wait=2, patience=1)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one round of short turns, without output files")
    parser.add_argument("--no-save", action="store_true", help="print the results, but write no file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.turn, options.wait, options.patience, options.no_save = 1, 0.1, 0.2, 0, True
    beside_one_rounds = 1 if options.quick else ROUNDS_BESIDE_ONE
    begun, quiet, missing, computer = time.perf_counter(), turns.Quiet(), {}, machine.describe()
    tasks, jobs = start_tasks(options, missing)
    rounds = take(options, tasks, quiet, options.rounds, options.turn)
    # Jobs that wait still look for messages: without them.
    beside_one = {name: tasks[name] for name in BESIDE_ONE if name in tasks}
    for job in set(jobs.values()) - {task.job for task in beside_one.values()}:
        job.stop()
    beside_one = take(options, beside_one, quiet, beside_one_rounds, TURN_BESIDE_ONE)
    programs = {key: job.described for key, job in jobs.items()}
    for job in {task.job for task in tasks.values() if task.job.process.poll() is None}:
        job.stop()
    results = {
        "machine": computer,
        "options": vars(options),
        "quiet": quiet.report(),
        "run_seconds": time.perf_counter() - begun,
        "missing": missing,
        "programs": programs,
        "seconds": rounds,
        "seconds_beside_one": beside_one,
        "ratios": figures_of(rounds, beside_one),
    }
    text = page(results)
    machine.publish(options, "processes", text, results)
    if not options.no_save:
        # The model's page follows from these figures.
        subprocess.run([sys.executable, turns.HERE / "scaling" / "scaling.py"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
