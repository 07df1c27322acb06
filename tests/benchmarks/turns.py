# SPDX-License-Identifier: Apache-2.0
"""Measures programs by turns: each is started once and warmed up; then one works while the others wait in a read, for several rounds in
changing order. Ratios are taken within a round, so that a machine that becomes slower favours no program."""

import json
import os
import statistics
import subprocess
import time

import machine

HERE = machine.ROOT / "tests" / "benchmarks"
BUILD = machine.PEERS / "build"


def add_options(parser):
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=1.0, help="approximate seconds of work in a turn; at least three steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--disturbed", type=float, default=0.04, help="the fraction of the machine used by others above which a turn is repeated")
    parser.add_argument("--wait", type=float, default=20, help="largest number of seconds to wait for an idle machine before a turn")
    parser.add_argument("--patience", type=int, default=3, help="largest number of repetitions of a turn")


class Quiet:
    """How much of the machine other processes used during the turns."""

    def __init__(self):
        self.busiest = self.stolen = 0.0
        self.repeated = 0

    def note(self, others, stolen):
        self.busiest, self.stolen = max(self.busiest, others), max(self.stolen, stolen)

    def report(self):
        return {"others_busy": self.busiest, "stolen": self.stolen, "turns_repeated": self.repeated}


class Missing(Exception):
    """Raised for a program that ended before it described itself."""


class Program:
    """A program with the protocol of peers/protocol.py. It runs until stop(); ready() waits for its description."""

    def __init__(self, key, command, threads, **environment):
        self.key, self.begun = key, time.perf_counter()
        self.log = machine.PEERS / f"{key}.log"
        numbers = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **numbers, **environment},
            stderr=self.log.open("w"),
        )

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.process.wait()
        raise Missing(f"{self.key} stopped: {self.log.read_text()[-1000:].strip()}")

    def ready(self):
        """Waits until the program is warmed up; `start_seconds` is the time since the start of its process."""
        self.described = self.answer()
        self.start_seconds = time.perf_counter() - self.begun
        return self

    def ask(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()

    def work(self, count):
        self.ask(count)
        return self.answer()

    def seconds(self):
        return machine.process_seconds(self.process.pid)

    def peak_megabytes(self):
        return machine.peak_bytes(self.process.pid) / 1e6

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Modes:
    """A program with several modes, none of which is the fastest on every processor: `environments` has the environment of each mode by
    its name. `fastest` tries them."""

    def __init__(self, command, environments):
        self.command, self.environments = command, environments

    def fastest(self, key, options):
        """The program in its fastest mode, warmed up. "how" in its description names the mode, "modes" has the milliseconds per step in
        each. A mode that cannot be started is left out."""
        best, tried, problems = None, {}, []
        for mode, environment in self.environments.items():
            try:
                program = Program(key, self.command, options.threads, **environment).ready()
                seconds = program.work(amount_for(program.work(3), options.turn))["seconds"]
            except (Missing, OSError) as error:
                problems.append(f"{mode}: {error}")
                continue
            tried[mode] = 1e3 * statistics.median(seconds)
            program.described["how"] += f", {mode}"
            slower = program
            if best is None or tried[mode] < min(took for other, took in tried.items() if other != mode):
                best, slower = program, best
            if slower is not None:
                slower.stop()
        if best is None:
            raise Missing("; ".join(problems))
        best.described["modes"] = tried
        print(f"{key}: " + ", ".join(f"{mode} {took:.3g} ms" for mode, took in tried.items()), flush=True)
        return best


TENSORFLOW_MODES = {"oneDNN": {"TF_ENABLE_ONEDNN_OPTS": "1"}, "Eigen": {"TF_ENABLE_ONEDNN_OPTS": "0"}}
TORCH_MODES = {"oneDNN": {"TORCH_ONEDNN": "1"}, "without oneDNN": {"TORCH_ONEDNN": "0"}}


def cupola_step(network, precision, batch, threads, *words):
    return [BUILD / "training_step", network, precision, batch, threads, *words]


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def text_of(value, digits=0):
    return f"{value['median']:.{digits}f} ({value['least']:.{digits}f} to {value['most']:.{digits}f})"


def ratios(above, below):
    """The spread of a ratio over the rounds."""
    return spread([a / b for a, b in zip(above, below)])


def step_seconds(rounds):
    """The median time of a step in each round."""
    return [statistics.median(r["seconds"]) for r in rounds]


def amount_for(result, turn):
    """The amount of work in a turn, estimated by a trial: steps, or repetitions of oneDNN's primitives."""
    one = result["pass_median"] / 1e3 if "pass_median" in result else statistics.median(result["seconds"])
    return max(3, min(20_000, round(turn / one)))


def one_turn(options, program, running, amount):
    """The answer of the program, the shares of the machine that other processes and its host used, and the share of a processor that
    each waiting program used."""
    time.sleep(0.2)  # lets threads that spin after their last parallel region go to sleep
    machine.wait_until_quiet(options.disturbed, options.wait, 0.3)
    busy, steal = machine.busy_seconds()
    before = {other.key: other.seconds() for other in running}
    start = time.perf_counter()
    result = program.work(amount)
    elapsed = time.perf_counter() - start
    used = {other.key: other.seconds() - before[other.key] for other in running}
    busy_after, steal_after = machine.busy_seconds()
    all_of_it = elapsed * os.cpu_count()
    idle = {key: seconds / elapsed for key, seconds in used.items() if key != program.key}
    return result, max(0.0, busy_after - busy - used[program.key]) / all_of_it, (steal_after - steal) / all_of_it, idle


def take(options, commands, quiet):
    """Starts the programs (`commands`, by key), lets them take turns and stops them. Returns their descriptions with the peak of their
    memory, and the answers in each round. A program that cannot be started is left out; "missing" has the reason."""
    # All programs run on the same processors, so that a peer with more threads than allowed has no advantage.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    running, missing = [], {}
    for key, command in commands.items():
        try:
            if isinstance(command, Modes):
                running.append(command.fastest(key, options))
            else:
                running.append(Program(key, command, options.threads).ready())
        except (Missing, OSError) as error:
            missing[key] = str(error)
            print(f"{key} is skipped: {error}", flush=True)
    amounts = {p.key: amount_for(p.work(3), options.turn) for p in running}
    rounds, awake = {p.key: [] for p in running}, {}
    for number in range(options.rounds):
        first = number % max(1, len(running))
        for program in running[first:] + running[:first]:
            for attempt in range(options.patience + 1):
                result, others, stolen, idle = one_turn(options, program, running, amounts[program.key])
                if others <= options.disturbed or attempt == options.patience:
                    break
                quiet.repeated += 1
            quiet.note(others, stolen)
            for key, share in idle.items():
                awake[key] = max(awake.get(key, 0.0), share)
            rounds[program.key].append(result)
            one = result["sum_median"] if "sum_median" in result else 1e3 * statistics.median(result["seconds"])
            print(f"round {number + 1}: {program.key}: {one:.3g} ms, others used {others:.0%} of the machine", flush=True)
    described = {"missing": missing} if missing else {}
    for program in running:
        described[program.key] = {**program.described, "peak_megabytes": program.peak_megabytes()}
        program.stop()
        if awake.get(program.key, 0.0) > 0.05:
            raise SystemExit(f"{program.key} used {awake[program.key]:.0%} of a processor while another was measured")
    return described, rounds


def json_of(options, quiet, command, **environment):
    """Runs a program that measures by itself while the machine is quiet; returns the JSON in the last line of its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), **environment}
    for attempt in range(options.patience + 1):
        time.sleep(0.2)
        machine.wait_until_quiet(options.disturbed, options.wait, 0.3)
        busy, steal = machine.busy_seconds()
        start = time.perf_counter()
        with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, env=environment) as process:
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{command[0]} ended with status {process.returncode}")
        all_of_it = (time.perf_counter() - start) * os.cpu_count()
        busy_after, steal_after = machine.busy_seconds()
        others = max(0.0, busy_after - busy - usage.ru_utime - usage.ru_stime) / all_of_it
        if others <= options.disturbed or attempt == options.patience:
            quiet.note(others, (steal_after - steal) / all_of_it)
            return json.loads(output.strip().splitlines()[-1])
        quiet.repeated += 1
