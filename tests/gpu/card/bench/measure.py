# SPDX-License-Identifier: Apache-2.0
"""The measurements of tests/gpu/run, one method per stage: the plans, the rates of the machine, the parts of a step, the step compared
with PyTorch's by turns, memory, averaging, and the batches that are made on the device; and the goals that they have to meet."""

import dataclasses
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

from stages import EMULATED_TIMES, Failed, Skipped, json_of, last_lines, run

from bench import roofline
from bench.side_by_side import Program, Stopped, take_turns

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.append(str(ROOT / "tests/benchmarks"))
import turns  # noqa: E402

# Like with like: both programs compute products and convolutions in float32, or both in TF32. "tf32-convolutions" would be PyTorch's
# defaults, TF32 in convolutions alone.
PRECISIONS, BATCHES = ("float", "tf32", "bfloat16", "half"), (128, 512, 2048)
ROWS = [(precision, batch) for batch in BATCHES for precision in PRECISIONS]
# The entry whose kernels are listed.
LISTED = [("bfloat16", 128), ("bfloat16", 2048), ("float", 128), ("float", 2048), ("tf32", 128), ("tf32", 2048), ("half", 128)]
PEERS = {
    "eager": "PyTorch, eager",
    "compiled": "PyTorch, compiled",
    "captured": "PyTorch, compiled and captured",
    "autotuned": "PyTorch, compiled with max-autotune and captured",
}
# The step with batches that the GPU makes of images, in this precision, against PyTorch's with the same augmentation.
AUGMENTED = [("bfloat16", batch) for batch in BATCHES]
# A program that does not answer in its turn for the last of these times is left out.
ROUNDS, TURN_SECONDS, LONGEST_TURN = 5, 0.12, 60.0
# The ways to queue a step, with the words of bench_step for them, and the batch sizes at which they are compared.
WAYS, WAYS_AT = {"one chain": ["chain"], "branches": [], "one chain, launched early": ["chain", "early"], "branches, launched early": ["early"]}, (128, 2048)
# For compiling in the background, while Cupola is tested.
COMPILE_SECONDS = 280
# Asked of each of our own kernels at the largest batch, whose data no cache holds: this fraction of its bound.
OF_BOUND = 0.7
PREDICTED = ROOT / "docs/measurements/gpu-predicted.json"
# The step that has a goal of its own: a limit in milliseconds. Its plans are those that are made cold and warm.
STEP, MILLISECONDS = ("bfloat16", 128), 0.13
# The plans of its convolutions: two forward, two of weights, one of the input. Two choices are alike if they are the same, or if the
# first takes at most so much of the time of the second, once the GPU and the libraries are warm.
CONVOLUTIONS, ALIKE = 5, 1.05


EMULATED = False


def emulate():
    """From now on one precision and size are measured, on an emulated GPU whose clock is the same in each turn. What it assumes of a card is
    the rates that the page of predictions has for an H200."""
    global EMULATED, PRECISIONS, BATCHES, ROWS, LISTED, WAYS, WAYS_AT, TURN_SECONDS, ROUNDS, LONGEST_TURN
    EMULATED, PRECISIONS, BATCHES, ROWS, LISTED, WAYS_AT, TURN_SECONDS, ROUNDS = True, STEP[:1], STEP[1:], [STEP], [STEP], STEP[1:], 0.0, 1
    LONGEST_TURN = 60.0 * EMULATED_TIMES
    WAYS = {name: WAYS[name] for name in ("one chain", "branches, launched early")}


def least_ratio(precision, batch):
    """The goal: the minimum ratio of the time of PyTorch's fastest mode to that of the step; more than 1 where no other is set."""
    if precision == "bfloat16":
        return {128: 2.0, 2048: 1.3}.get(batch, 1.0)
    return 1.2 if precision in ("float", "tf32") else 1.0


def row_of(precision, batch, rounds, missing, profile, rates):
    """One line of the comparison: times, ratios within each round, the fraction of the roofline, and the limit."""
    row = {
        "precision": precision,
        "batch": batch,
        "tf32": precision == "tf32",
        "missing": missing,
        "bars": [],
        "milliseconds": milliseconds_of(rounds),
        "rounds": {key: len(values) for key, values in rounds.items()},
    }
    own = rounds.get("cupola")
    if own:
        row["images_per_second"] = turns.spread([batch / s for s in own])
        row["ratios"] = {peer: turns.ratios(rounds[peer], own) for peer in PEERS if rounds.get(peer)}
        if profile and rates:
            least = roofline.of_step(profile["parts"], rates[precision])
            seconds = row["milliseconds"]["cupola"]["median"] / 1e3
            row["roofline"] = {**least, "reached": least["seconds"] / seconds, "reached_of_whole": least["whole"] / seconds}
    asked = least_ratio(precision, batch)
    known = {peer: ratio["median"] for peer, ratio in row.get("ratios", {}).items()}
    best = min(known, key=known.get) if known else None
    measured = known[best] if best else None
    absent = [peer for peer in PEERS if peer not in known]
    # To be ahead, the step must be faster than the peer, not equally fast. A mode that is missing might be the fastest.
    met = None if absent or measured is None else measured >= asked if asked > 1 else measured > 1
    name = f"{precision} {batch}"
    of = f", of the modes but {', '.join(absent)}" if absent and known else ""
    row["bars"].append({"what": f"{name} over PyTorch's fastest mode{f' ({best})' if best else ''}{of}", "asked": asked, "measured": measured, "met": met})
    return row


def step_bar(took, least):
    """The limit of the step that has one: `took` are its milliseconds and `least` those that are predicted at the rates and floors of this
    card, each None if not known. No card is asked for less than its own floors allow."""
    what, asked = f"{STEP[0]} {STEP[1]}, milliseconds", MILLISECONDS
    if least is not None and least > asked:
        what, asked = f"{what} (the goal is {MILLISECONDS:g}; the floors of this card allow no less)", least
    return {"what": what, "asked": asked, "measured": took, "met": took and took <= asked, "at_most": True, "least": least}


def line_of(row):
    name = f"{row['precision']:8} {row['batch']:4}{' with augmentation' if row.get('augmented') else ''}"
    if not row["milliseconds"]:
        return f"{name}: not measured"

    def spread(key, values, digits):
        return turns.text_of(values[key], digits) if key in values else "not measured"

    words = [f"{name}: {spread('cupola', row['milliseconds'], 4)} ms"]
    if "images_per_second" in row:
        words.append(f"{row['images_per_second']['median']:,.0f} images/s")
    titles = {"augmented": "PyTorch, captured, with augmentation"} if row.get("augmented") else PEERS
    for peer, title in titles.items():
        words.append(f"{title} {spread(peer, row['milliseconds'], 4)} ms, ratio {spread(peer, row.get('ratios', {}), 2)}")
    if "roofline" in row:
        words.append(f"{row['roofline']['reached']:.2f} of the roofline ({1e3 * row['roofline']['seconds']:.4f} ms)")
    return "; ".join(words)


def grouped(problems):
    """(name, reason) pairs as text, with each reason once."""
    names = {}
    for name, reason in problems:
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(of)}: {reason}" for reason, of in names.items())


def bars_missed(bars):
    """A message about the limits that are not met or were not measured; empty if all are met."""
    missed = [bar for bar in bars if not bar["met"]]
    if not missed:
        return ""
    words = [
        f"{bar['what']} is {'not measured' if bar['measured'] is None else format(bar['measured'], '.3g')}, asked"
        f"{' at most' if bar.get('at_most') else ''} {bar['asked']:g}"
        for bar in missed
    ]
    return f"{len(missed)} of {len(bars)} bars are not met: " + "; ".join(words)


def met(found, problem=""):
    """What was found, unless there is a problem, or one of its bars is missed."""
    problem = problem or bars_missed(found["bars"])
    if problem:
        raise Failed(problem, found)
    return found


def kernel_bars(precision, batch, rows, floors=roofline.PUBLISHED):
    """The goal of each of our own kernels: a fraction of its bound, which is at least the shortest time of a kernel on this card."""
    bars = []
    for row in rows[:-1]:
        if row["name"] == roofline.LIBRARIES or row["count"] == 0:
            continue
        bound = max(row["bound"], row["count"] * floors.kernel)
        reached = bound / row["measured"] if row["measured"] else None
        what = f"{roofline.short_name(row['name'])} in {precision} at {batch}, of its bound"
        bars.append({"what": what, "asked": OF_BOUND, "measured": reached, "met": reached and reached >= OF_BOUND})
    return bars


class Measured:
    """`programs` finds the programs (require(name), or Skipped), `cache` is the folder of PyTorch's compiled code and of the chosen plans.
    Later stages use the results of earlier ones."""

    def __init__(self, programs, cache, out):
        self.programs, self.cache, self.out, self.log = programs, cache, out, out / "measurements.log"
        self.peers, self.compilers, self.peers_missing = {}, {}, {}
        self.rates, self.profiles, self.own_rates, self.bytes = None, {}, {}, {}
        self.floors = roofline.PUBLISHED
        # Called with what a stage has found by then.
        self.known = lambda found: None
        # Whether the files of plans are of this run.
        self.has_plans = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in [*self.peers.values(), *self.compilers.values()]:
            program.stop()

    def command(self, precision, batch, *words):
        name = "float" if precision.startswith("tf32") else precision
        plans = self.cache / f"plans-{precision}.txt"
        return [
            self.programs.require(f"bench_step_{name}"),
            batch,
            *([precision] if precision.startswith("tf32") else []),
            *words,
            *([f"plans={plans}"] if "plans" in words or (self.has_plans and plans.exists()) else []),
        ]

    def peer(self, precision, seconds, *words):
        return Program(
            f"PyTorch in {precision}{' (compiling)' if words else ''}",
            [sys.executable, ROOT / "tests/benchmarks/peers/torch_step_cuda.py", precision, ",".join(map(str, BATCHES)), seconds, *words],
            self.log,
            TORCHINDUCTOR_CACHE_DIR=str(self.cache / "inductor"),
            TRITON_CACHE_DIR=str(self.cache / "triton"),
            TORCHINDUCTOR_COMPILE_THREADS="4",
        )

    def start_compiling(self):
        """Fills PyTorch's caches. What is timed later runs in new processes, whose choices the tests of Cupola cannot disturb."""
        if importlib.util.find_spec("torch") is None:
            raise Skipped(f"{sys.executable} has no PyTorch")
        shutil.rmtree(self.cache, ignore_errors=True)
        for precision in PRECISIONS:
            self.compilers[precision] = self.peer(precision, COMPILE_SECONDS, "--compile-only")

    def end_compiling(self, seconds):
        """From here on nothing else uses the GPU."""
        end = time.monotonic() + seconds - 1
        found, late = {}, []
        for precision, program in self.compilers.items():
            try:
                found[precision] = program.ready(max(0.1, end - time.monotonic()))
            except Stopped as reason:
                late.append(str(reason))
            program.stop()
        begun, self.compilers = bool(self.compilers), {}
        if not begun:
            raise Skipped("PyTorch was not started")
        lines = [f"{precision}: {len(said['compiled'])} programs in {said['seconds']:.0f} s" for precision, said in found.items()]
        if late:
            raise Failed("; ".join(late), {"compiled": found, "lines": lines})
        return {"compiled": found, "lines": lines}

    def start_peers(self, seconds):
        end = time.monotonic() + seconds - 2
        if importlib.util.find_spec("torch") is None:
            raise Skipped(f"{sys.executable} has no PyTorch")
        for precision in PRECISIONS:
            self.peers[precision] = self.peer(precision, seconds - 12)
        return self.await_peers(end - time.monotonic())

    def await_peers(self, seconds):
        if not self.peers:
            raise Skipped("no program was started")
        end = time.monotonic() + seconds
        found, lines = {}, []
        for precision, program in list(self.peers.items()):
            try:
                said = found[precision] = program.ready(max(0.1, end - time.monotonic()))
            except Stopped as reason:
                self.peers_missing[precision] = str(reason)
                program.stop()
                del self.peers[precision]
                continue
            lines.append(f"PyTorch {said['version']}, {said['how']}: {', '.join(said['programs'])}")
            left_out = {}
            for key, why in said.get("left_out", {}).items():
                left_out.setdefault(why, []).append(key)
            lines += [f"    left out: {', '.join(keys)}: {why}" for why, keys in left_out.items()]
        if self.peers_missing:
            raise Failed("; ".join(self.peers_missing.values()), {"peers": found, "lines": lines})
        return {"peers": found, "lines": lines}

    def empty_chain(self, seconds):
        """The floors of this card, which the later goals follow from."""
        chain = json_of(self.command(*STEP, "empty"), seconds, self.log)
        try:
            self.floors = roofline.floors_of(chain)
        except (KeyError, TypeError, ValueError) as error:
            raise Failed(f"the chain of empty kernels has no usable times: {error}; {roofline.PUBLISHED.text()} are used", {"chain": chain}) from None
        lines = [self.floors.text(), f"without a measurement: {roofline.PUBLISHED.text()}"]
        return {"chain": chain, "floors": dataclasses.asdict(self.floors), "lines": lines}

    def plans_again(self, seconds):
        """The plans of the convolutions of a step, made by one process several times: the first time with cold libraries on an idle GPU."""
        try:
            status, output = run(self.command(*STEP, "again"), seconds, self.log)
            problem = f"it ended with status {status}: {last_lines(output, 1)}" if status != 0 else ""
        except subprocess.TimeoutExpired as expired:
            problem, output = f"it was ended after {seconds:.0f} s", expired.output
        times = [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]
        return convolutions_found(times, problem)

    def predicted_seconds(self, precision, batch):
        """What is predicted of a step at the rates and the floors that this card was measured to have; None without rates."""
        if not self.rates or precision not in self.rates:
            return None
        step = next((one for one in json.loads(PREDICTED.read_text())["steps"] if (one["precision"], one["batch"]) == (precision, batch)), None)
        if step is None:
            return None
        with roofline.card("this machine", self.card_rates()):
            return roofline.predicted_of_step(step["launches"], precision, "this machine", self.floors)

    def card_rates(self):
        """The measured rates as those of a card of roofline.py; the bytes are those of the widest elements."""
        return {
            "bytes": max(self.rates[name]["bytes"] for name in PRECISIONS if name in self.rates),
            **{name: self.rates[name]["operations"] for name in PRECISIONS if name in self.rates},
        }

    def own_step(self, seconds):
        """The step that has a goal of its own, alone on the GPU."""
        end = time.monotonic() + seconds - 2
        rounds, described, missing = self.by_turns({"cupola": self.command(*STEP)}, end)
        if missing or not rounds.get("cupola"):
            raise Failed(missing.get("cupola", "no round was ended"))
        took, seconds_predicted = milliseconds_of(rounds)["cupola"], self.predicted_seconds(*STEP)
        least = None if seconds_predicted is None else 1e3 * seconds_predicted
        lines = [f"{STEP[0]} {STEP[1]}, {described['cupola'].get('how', '')}: {turns.text_of(took, 4)} ms"]
        if least is not None:
            lines.append(f"predicted at the rates of this card: {least:.4f} ms, of {self.floors.text()}")
        bars = [step_bar(took["median"], least)]
        found = {"milliseconds": took, "predicted_milliseconds": least, "bars": bars, "lines": lines}
        return met(found)

    def plans(self, seconds):
        """The plans of all rows, made one after another on a GPU that does nothing else; the later stages take them from files."""
        end = time.monotonic() + seconds
        found, lines, missing = {}, [], []
        self.cache.mkdir(parents=True, exist_ok=True)
        for old in self.cache.glob("plans-*.txt"):
            old.unlink()
        self.has_plans = True
        for precision in PRECISIONS:
            left = end - time.monotonic()
            if left < 2:
                missing.append((precision, "no time was left for it"))
                continue
            try:
                try:
                    status, output = run(self.command(precision, ",".join(map(str, BATCHES)), "plans"), left, self.log)
                    problem = f"it ended with status {status}: {last_lines(output, 1)}" if status != 0 else ""
                except subprocess.TimeoutExpired as expired:  # the sizes before the one that it was at are there
                    problem, output = f"it was ended after {left:.0f} s", expired.output
                for said in (json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")):
                    self.bytes[precision, said["batch"]] = said["bytes"]
                    found[f"{precision} {said['batch']}"] = {key: said[key] for key in ("plans", "launches")}
                    lines.append(f"{precision} {said['batch']}: {said['launches']}")
                    for plan in said["plans"]:
                        lines.append(f"    {plan['plan']}")
                        lines += [f"        {1e3 * one['seconds']:.4f} ms  {one['name']}" for one in plan["candidates"]]
                self.known({"plans": found, "lines": lines})
                if problem:
                    missing.append((precision, problem))
            except Exception as error:  # the other precisions have their turn
                missing.append((precision, str(error)))
        return found_or_failed({"plans": found, "lines": lines}, missing)

    def memory(self):
        """What a training takes of the GPU's memory: all of it for Cupola, what its allocator held at most for PyTorch."""
        rows, lines = {}, []
        for precision, batch in ROWS:
            row = {}
            if (precision, batch) in self.bytes:
                row["cupola"] = self.bytes[precision, batch]
            said = (self.peers[precision].described or {}) if precision in self.peers else {}
            for key, about in said.get("programs", {}).items():
                size, mode, _ = key.split()
                if int(size) == batch and about.get("bytes"):
                    row[mode] = min(row.get(mode, float("inf")), about["bytes"])
            if row:
                rows[f"{precision} {batch}"] = row
                lines.append(f"{precision} {batch}: " + ", ".join(f"{key} {value / 2**20:,.0f} MiB" for key, value in row.items()))
        if not rows:
            raise Skipped("no program said what it uses")
        return {"bytes": rows, "lines": lines}

    def peak_rates(self, seconds):
        if EMULATED:
            card = roofline.CARDS["H200"]
            self.rates = {name: {"operations": card[name], "bytes": card["bytes"]} for name in PRECISIONS}
            return {"rates": self.rates, "lines": ["assumed of an H200, as the page of predictions assumes them"]}
        self.rates = json_of([self.programs.require("bench_machine"), "rates"], seconds, self.log)
        return {
            "rates": self.rates,
            "lines": [
                f"{name}: {self.rates[name]['operations'] / 1e12:.1f} TFLOP/s of a large product, "
                f"{self.rates[name]['bytes'] / 1e12:.2f} TB/s of a large copy"
                for name in self.rates
                if name in PRECISIONS
            ],
        }

    def each_row(self, rows, word, seconds, lines_of):
        """What a program prints for each row with this word, and the lines of the report; raises Failed with both if one is missing. A row
        has at most three quarters of the time, so that one that hangs leaves some to the others."""
        end = time.monotonic() + seconds
        said, lines, missing = {}, [], []
        for row in rows:
            precision, batch = row
            left = end - time.monotonic()
            if left < 2:
                missing.append((f"{precision} {batch}", "no time was left for it"))
                continue
            try:
                said[row] = json_of(self.command(precision, batch, word), min(left, 0.75 * seconds), self.log)
                lines += [f"{precision}, batch {batch}", *lines_of(row, said[row]), ""]
                self.known({word: by_name(said), "lines": lines})
            except Exception as error:  # the other rows can still be measured
                missing.append((f"{precision} {batch}", str(error)))
        return found_or_failed({word: by_name(said), "lines": lines}, missing)

    def node_times(self, seconds):
        def lines_of(row, profile):
            self.profiles[row] = profile
            return roofline.lines_of(profile, self.rates[row[0]]) if self.rates else []

        return self.each_row(ROWS, "nodes", seconds, lines_of)

    def kernel_times(self, seconds):
        """The kernels of a captured step, beside the bounds of the launches that are predicted, at the rates of this machine."""
        steps = json.loads(PREDICTED.read_text())["steps"]
        beside, bars = {}, []

        def lines_of(row, found):
            precision, batch = row
            lines = roofline.kernel_lines(found)
            step = roofline.predicted_step(steps, precision, batch, found["kernels"])
            if step is None or not self.rates or precision not in self.rates:
                return lines
            with roofline.card("this machine", self.card_rates()):
                rows = roofline.beside_prediction(step["launches"], precision, "this machine", found["kernels"], self.floors)
            beside[f"{precision} {batch}"] = rows
            if batch == BATCHES[-1]:
                bars.extend(kernel_bars(precision, batch, rows, self.floors))
            return [*lines, "beside the prediction:", *roofline.prediction_lines(rows)]

        try:
            found = self.each_row(LISTED, "kernels", seconds, lines_of)
        except Failed as reason:
            raise Failed(str(reason), {**reason.found, "beside": beside, "bars": bars}) from None
        found.update(beside=beside, bars=bars)
        return met(found)

    def fastest(self, precision, batch, mode, end):
        """The entry for the turns: of the programs of this mode the one that is fastest now, and its name."""
        said = (self.peers[precision].described or {}) if precision in self.peers else {}
        names = [key for key in said.get("programs", {}) if key.split()[:2] == [str(batch), mode]]
        if not names:
            raise Stopped(self.peers_missing.get(precision, "it was not made"))
        program = self.peers[precision]
        times = {}
        for name in names if len(names) > 1 else []:
            program.work(20, max(1.0, min(20.0, end - time.monotonic())), name)
            times[name] = program.work(60, max(1.0, min(20.0, end - time.monotonic())), name)
        return program, min(times, key=times.get) if times else names[0]

    def steps(self, seconds):
        end = time.monotonic() + seconds - 3
        own, missing_own, rows, lines, bars = {}, {}, [], [], []
        wanted = [(row, "") for row in ROWS] + [(row, "augmented") for row in AUGMENTED]
        try:
            # All at the same time: idle programs use only memory, and their plans are made.
            for (precision, batch), word in wanted:
                key = f"Cupola in {precision} at {batch}{word and f', {word}'}"
                try:
                    own[precision, batch, word] = Program(key, self.command(precision, batch, *([word] if word else [])), self.log)
                except (Stopped, Skipped) as reason:
                    missing_own[precision, batch, word] = str(reason)
            ready_end = time.monotonic() + seconds / 3
            for (precision, batch, word), program in own.items():
                try:
                    described = program.ready(max(0.1, ready_end - time.monotonic()))
                    if described["how"] != "captured":
                        lines.append(f"{precision} {batch} {word}: {described['how']}")
                except Stopped as reason:
                    missing_own[precision, batch, word] = str(reason)
                    program.stop()
            for number, ((precision, batch), word) in enumerate(wanted):
                now = time.monotonic()
                row_end = min(end, now + 2 * (end - now) / (len(wanted) - number))
                entries, missing, chosen = {}, {}, {}
                if (precision, batch, word) in missing_own:
                    missing["cupola"] = missing_own[precision, batch, word]
                else:
                    entries["cupola"] = (own[precision, batch, word], "")
                for peer in [word] if word else PEERS:
                    try:
                        entries[peer] = self.fastest(precision, batch, peer, row_end)
                        chosen[peer] = entries[peer][1].split()[-1]
                    except Stopped as reason:
                        missing[peer] = str(reason)
                rounds, stopped = take_turns(entries, ROUNDS, TURN_SECONDS, row_end, LONGEST_TURN)
                if (precision, batch, word) in own:
                    own[precision, batch, word].stop()
                row = (augmented_row if word else row_of)(
                    precision, batch, rounds, {**missing, **stopped}, self.profiles.get((precision, batch)), self.rates
                )
                row["lrn"] = chosen
                rows.append(row)
                lines.append(line_of(row))
                if row["missing"]:
                    lines.append(f"    missing: {grouped(row['missing'].items())}")
                bars += row["bars"]
                self.known({"rows": rows, "bars": bars, "lines": lines})
                if "images_per_second" in row and not word:
                    self.own_rates[batch] = max(self.own_rates.get(batch, 0), row["images_per_second"]["median"])
        finally:
            for program in own.values():
                program.stop()
        found = {"rows": rows, "bars": bars, "lines": lines}
        return met(found)

    def averaging(self, seconds):
        """A step in bfloat16 with 1, 2 and 4 replicas of 128 on the GPUs that there are, by each policy."""
        program, end = self.programs.require("bench_averaging"), time.monotonic() + seconds - 2
        rows, lines, missing = [], [], []
        for replicas in (1, 2, 4):
            row_end = time.monotonic() + (end - time.monotonic()) / (1 + (4 - replicas) // 2)
            commands = {policy: [program, policy, replicas, 128] for policy in ("concat-mean", "nccl")}
            rounds, described, absent = self.by_turns(commands, row_end)
            missing += [(f"{policy} with {replicas} replicas", reason) for policy, reason in absent.items()]
            times = milliseconds_of(rounds)
            rows.append({"replicas": replicas, "devices": next(iter(described.values()), {}).get("devices"), "milliseconds": times})
            if times:
                lines.append(f"{replicas} replicas of 128: " + ", ".join(f"{policy} {turns.text_of(value, 4)} ms" for policy, value in times.items()))
            self.known({"rows": rows, "lines": lines})
        return found_or_failed({"rows": rows, "lines": lines}, missing)

    def ways(self, seconds):
        """A step in bfloat16 as one chain of launches, with branches, and with kernels that are launched early (CudaOptions)."""
        end = time.monotonic() + seconds - 2
        rows, lines, missing = [], [], []
        for number, batch in enumerate(WAYS_AT):
            row_end = time.monotonic() + (end - time.monotonic()) / (len(WAYS_AT) - number)
            rounds, _, absent = self.by_turns({way: self.command("bfloat16", batch, *words) for way, words in WAYS.items()}, row_end)
            missing += [(f"{way} at {batch}", reason) for way, reason in absent.items()]
            chain = rounds.get("one chain")
            ratios = {way: turns.ratios(values, chain) for way, values in rounds.items() if chain and values and values is not chain}
            rows.append({"batch": batch, "milliseconds": milliseconds_of(rounds), "over_chain": ratios})
            lines += [
                f"bfloat16 {batch}, {way}: {turns.text_of(value, 4)} ms"
                + (f", {turns.text_of(ratios[way], 3)} of one chain" if way in ratios else "")
                for way, value in rows[-1]["milliseconds"].items()
            ]
            self.known({"rows": rows, "lines": lines})
        return found_or_failed({"rows": rows, "lines": lines}, missing)

    def by_turns(self, commands, end):
        """The times of the rounds of programs that run at the same time, what they said of themselves, and the reasons why some are
        missing."""
        running, entries, described, missing = {}, {}, {}, {}
        try:
            for key, command in commands.items():
                try:
                    running[key] = Program(key, command, self.log)
                    described[key] = running[key].ready(max(0.1, end - time.monotonic()))
                    entries[key] = (running[key], "")
                except Stopped as reason:
                    missing[key] = str(reason).removeprefix(f"{key} ")
            rounds, stopped = take_turns(entries, ROUNDS, TURN_SECONDS, end, LONGEST_TURN)
        finally:
            for one in running.values():
                one.stop()
        return rounds, described, {**missing, **stopped}

    def batches(self, seconds):
        status, output = run([self.programs.require("bench_batches")], seconds, self.log)
        return batches_found(status, output, self.own_rates)


def convolution_of(plan):
    """A convolution of a plan, whatever its channels are padded to: "forward -> 24 x 24 x 64"; None for another operation."""
    found = re.search(r", ([^,:]*(?:, bias)?(?:, ReLU)?) of a convolution in \w+: .* -> ([^,]*),", plan["key"])
    return f"{found.group(1)} -> {found.group(2)}" if found else None


def seconds_among(plan, choice, padded):
    """The time of a choice among the candidates of a plan; None if it was not timed."""
    named = [one["seconds"] for one in plan["candidates"] if one["name"].split(",")[0] == choice and ("padded" in one["name"]) == padded]
    return min(named, default=None)


def convolutions_found(times, problem):
    """Of the plans that were made cold and then warm: the choices, and a bar for the number of those that are alike."""
    made = [{convolution_of(plan): plan for plan in one["plans"] if convolution_of(plan)} for one in times]
    took = ", ".join(f"{one['seconds']:.2f}" for one in times)
    lines, plans, alike = [f"made in {took} s" if times else "none was made"], {}, 0
    for name in made[0] if made else []:
        cold, warm = made[0][name], made[-1].get(name) if len(made) > 1 else None
        plans[name] = [{"choice": each[name]["choice"], "seconds": each[name]["seconds"]} for each in made if name in each]
        words = [f"{name}: cold {cold['choice']}, {1e3 * cold['seconds']:.4f} ms"]
        if warm is not None:
            again = seconds_among(warm, cold["choice"], "zeros" in cold["key"])
            same = cold["choice"] == warm["choice"] and ("zeros" in cold["key"]) == ("zeros" in warm["key"])
            alike += same or (again is not None and again <= ALIKE * warm["seconds"])
            words.append(f"warm {'the same' if same else warm['choice']}, {1e3 * warm['seconds']:.4f} ms")
            if not same:
                words.append("the cold choice was not timed again" if again is None else f"the cold choice {1e3 * again:.4f} ms")
        lines.append("; ".join(words))
    whole = len(made) > 1 and len(made[0]) == CONVOLUTIONS
    what = "convolutions whose plans are chosen alike cold and warm"
    bars = [{"what": what, "asked": CONVOLUTIONS, "measured": alike if whole else None, "met": alike == CONVOLUTIONS if whole else None}]
    found = {"again": plans, "seconds": [one["seconds"] for one in times], "bars": bars, "lines": lines}
    if not problem and not whole:
        problem = f"plans of {len(made[0]) if made else 0} convolutions were made {len(made)} times, and {CONVOLUTIONS} are expected"
    return met(found, problem)


def by_name(rows):
    return {f"{precision} {batch}": of_row for (precision, batch), of_row in rows.items()}


def milliseconds_of(rounds):
    return {key: turns.spread([1e3 * s for s in values]) for key, values in rounds.items() if values}


def found_or_failed(found, missing):
    if missing:
        raise Failed(grouped(missing), found)
    return found


def augmented_row(precision, batch, rounds, missing, *_):
    """The comparison with batches that the GPU makes; no goal is set for it but to be ahead."""
    row = {
        "precision": precision,
        "batch": batch,
        "augmented": True,
        "missing": missing,
        "milliseconds": milliseconds_of(rounds),
        "rounds": {key: len(values) for key, values in rounds.items()},
        "bars": [],
    }
    ratio = None
    if rounds.get("cupola"):
        row["images_per_second"] = turns.spread([batch / s for s in rounds["cupola"]])
        if rounds.get("augmented"):
            row["ratios"] = {"augmented": turns.ratios(rounds["augmented"], rounds["cupola"])}
            ratio = row["ratios"]["augmented"]["median"]
    what = f"{precision} {batch} with augmentation on the GPU over PyTorch's"
    row["bars"].append({"what": what, "asked": 1.0, "measured": ratio, "met": ratio and ratio > 1})
    return row


def batches_found(status, output, own_rates):
    """Of lines {"batch", "images_per_second"}: the rate per batch size, and its ratio to the rate of the step in the fastest precision."""
    made = {}
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                said = json.loads(line)
                made[int(said["batch"])] = float(said["images_per_second"])
            except (ValueError, KeyError):
                continue
    if status != 0 or not made:
        raise Failed(f"bench_batches ended with status {status}: {last_lines(output, 1)}")
    bars, lines = [], []
    for batch in BATCHES:
        ratio = made[batch] / own_rates[batch] if batch in made and own_rates.get(batch) else None
        what = f"batches of {batch} over the step's own rate"
        bars.append({"what": what, "asked": 5.0, "measured": ratio, "met": ratio is not None and ratio >= 5})
        if batch in made:
            lines.append(f"batches of {batch}: {made[batch]:,.0f} images/s" + (f", {ratio:.1f} x the step's own" if ratio else ""))
    found = {"images_per_second": {str(batch): rate for batch, rate in made.items()}, "bars": bars, "lines": lines}
    return met(found)
