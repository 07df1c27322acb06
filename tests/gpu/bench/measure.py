# SPDX-License-Identifier: Apache-2.0
"""The measurements of `tests/gpu/run OUT_DIR bench`, one method per stage: the rates of the machine, the parts of a step, the step
compared with PyTorch's by turns, and the batches that are made on the device; and the limits that they have to meet."""

import importlib.util
import json
import pathlib
import shutil
import sys
import time

from stages import Failed, Skipped, json_of, last_lines, run

from bench import roofline
from bench.side_by_side import Program, Stopped, take_turns

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/benchmarks"))
import turns  # noqa: E402

PRECISIONS, BATCHES = ("float", "tf32", "bfloat16"), (128, 512, 2048)
ROWS = [(precision, batch) for batch in BATCHES for precision in PRECISIONS]
# The entry whose kernels are listed.
LISTED = [("bfloat16", 128), ("bfloat16", 2048), ("float", 128), ("tf32", 2048)]
PEERS = {"compiled": "PyTorch, compiled", "captured": "PyTorch, compiled and captured"}
ROUNDS, TURN_SECONDS = 5, 0.25
# After this time PyTorch tries no further implementations of LRN, so that the rest is left for measuring.
PEER_SECONDS = 150


def least_ratio(precision, batch, peer):
    """The minimum ratio of a peer's time to that of the step."""
    return 2.0 if (precision, batch, peer) == ("bfloat16", 128, "compiled") else 1.0


def row_of(precision, batch, rounds, missing, profile, rates):
    """One line of the comparison: times, ratios within each round, the fraction of the roofline, and the limit."""
    row = {
        "precision": precision,
        "batch": batch,
        "tf32": precision == "tf32",
        "missing": missing,
        "bars": [],
        "milliseconds": {key: turns.spread([1e3 * s for s in values]) for key, values in rounds.items() if values},
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
    for peer in PEERS:
        asked = least_ratio(precision, batch, peer)
        ratio = row.get("ratios", {}).get(peer)
        # To be ahead, the step must be faster than the peer, not equally fast.
        met = None if ratio is None else ratio["median"] >= asked if asked > 1 else ratio["median"] > 1
        row["bars"].append({"over": peer, "asked": asked, "measured": ratio and ratio["median"], "met": met})
    return row


def line_of(row):
    def spread(key, values, digits):
        return turns.text_of(values[key], digits) if key in values else "not measured"

    words = [f"{row['precision']:8} {row['batch']:4}: {spread('cupola', row['milliseconds'], 4)} ms"]
    if "images_per_second" in row:
        words.append(f"{row['images_per_second']['median']:,.0f} images/s")
    for peer, title in PEERS.items():
        words.append(f"{title} {spread(peer, row['milliseconds'], 4)} ms, ratio {spread(peer, row.get('ratios', {}), 2)}")
    if "roofline" in row:
        words.append(f"{row['roofline']['reached']:.2f} of the roofline ({1e3 * row['roofline']['seconds']:.4f} ms)")
    return "; ".join(words)


def bars_missed(bars):
    """A message about the limits that are not met or were not measured; empty if all are met."""
    missed = [bar for bar in bars if not bar["met"]]
    if not missed:
        return ""
    words = [
        f"{bar['what']} is {'not measured' if bar['measured'] is None else format(bar['measured'], '.2f')}, asked {bar['asked']:g}"
        for bar in missed
    ]
    return f"{len(missed)} of {len(bars)} bars are not met: " + "; ".join(words)


class Measured:
    """`programs` is the folder of the programs, `cache` that of PyTorch's compiled code. Later stages use the results of earlier ones."""

    def __init__(self, programs, cache, out):
        self.programs, self.cache, self.out = programs, cache, out
        self.peers, self.rates, self.profiles, self.own_rates = {}, None, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.peers.values():
            program.stop()

    def command(self, precision, batch, *words):
        program = "bench_step_bfloat16" if precision == "bfloat16" else "bench_step_float"
        return [self.programs / program, batch, *(["tf32"] if precision == "tf32" else []), *words]

    def start_peers(self):
        if importlib.util.find_spec("torch") is None:
            raise Skipped(f"{sys.executable} has no PyTorch")
        shutil.rmtree(self.cache, ignore_errors=True)
        script = ROOT / "tests/benchmarks/peers/torch_step_cuda.py"
        for precision in PRECISIONS:
            self.peers[precision] = Program(
                f"PyTorch in {precision}",
                [sys.executable, script, precision, ",".join(map(str, BATCHES)), PEER_SECONDS],
                self.out / "peers.log",
                TORCHINDUCTOR_CACHE_DIR=str(self.cache / "inductor"),
                TRITON_CACHE_DIR=str(self.cache / "triton"),
                TORCHINDUCTOR_COMPILE_THREADS="4",
            )

    def await_peers(self, seconds):
        if not self.peers:
            raise Skipped("no program was started")
        end = time.monotonic() + seconds
        found, missing, lines = {}, [], []
        for precision, program in list(self.peers.items()):
            try:
                found[precision] = program.ready(max(0.1, end - time.monotonic()))
            except Stopped as reason:
                missing.append(str(reason))
                program.stop()
                del self.peers[precision]
                continue
            lines.append(
                f"PyTorch {found[precision]['version']}, {found[precision]['how']}; its faster LRN: "
                + ", ".join(f"{key}: {about['lrn']}" for key, about in found[precision]["programs"].items())
            )
        if missing:
            raise Failed("; ".join(missing), {"peers": found, "lines": lines})
        return {"peers": found, "lines": lines}

    def peak_rates(self, seconds):
        self.rates = json_of([self.programs / "bench_machine", "rates"], seconds, self.out / "programs.log")
        return {
            "rates": self.rates,
            "lines": [
                f"{name}: {self.rates[name]['operations'] / 1e12:.1f} TFLOP/s of a large product, "
                f"{self.rates[name]['bytes'] / 1e12:.2f} TB/s of a large copy"
                for name in PRECISIONS
            ],
        }

    def each_row(self, rows, word, seconds, lines_of):
        """What a program prints for each row with this word, and the lines of the report; raises Failed with both if one is missing."""
        end = time.monotonic() + seconds
        said, lines, missing = {}, [], []
        for row in rows:
            precision, batch = row
            left = end - time.monotonic()
            if left < 2:
                missing.append(f"{precision} {batch}: no time was left for it")
                continue
            try:
                said[row] = json_of(self.command(precision, batch, word), min(left, 30), self.out / "programs.log")
                lines += [f"{precision}, batch {batch}", *lines_of(row, said[row]), ""]
            except Exception as error:  # the other rows can still be measured
                missing.append(f"{precision} {batch}: {error}")
        if missing:
            raise Failed(
                "; ".join(missing),
                {word: {f"{precision} {batch}": of_row for (precision, batch), of_row in said.items()}, "lines": lines},
            )
        return {word: {f"{precision} {batch}": of_row for (precision, batch), of_row in said.items()}, "lines": lines}

    def node_times(self, seconds):
        def lines_of(row, profile):
            self.profiles[row] = profile
            return roofline.lines_of(profile, self.rates[row[0]]) if self.rates else []

        return self.each_row(ROWS, "nodes", seconds, lines_of)

    def kernel_times(self, seconds):
        return self.each_row(LISTED, "kernels", seconds, lambda _, found: roofline.kernel_lines(found))

    def steps(self, seconds):
        end = time.monotonic() + seconds - 3
        own, missing_own, rows, lines, bars = {}, {}, [], [], []
        try:
            # All at the same time: idle programs use only memory.
            for precision, batch in ROWS:
                key, command = f"Cupola in {precision} at {batch}", self.command(precision, batch)
                try:
                    own[precision, batch] = Program(key, command, self.out / "programs.log")
                except Stopped as reason:
                    missing_own[precision, batch] = str(reason)
            ready_end = time.monotonic() + seconds / 3
            for (precision, batch), program in own.items():
                try:
                    described = program.ready(max(0.1, ready_end - time.monotonic()))
                    if described["how"] != "captured":
                        lines.append(f"{precision} {batch}: {described['how']}")
                except Stopped as reason:
                    missing_own[precision, batch] = str(reason)
                    program.stop()
            for number, (precision, batch) in enumerate(ROWS):
                now = time.monotonic()
                row_end = min(end, now + 2 * (end - now) / (len(ROWS) - number))
                entries, missing = {}, {}
                if (precision, batch) in missing_own:
                    missing["cupola"] = missing_own[precision, batch]
                else:
                    entries["cupola"] = (own[precision, batch], "")
                for peer in PEERS:
                    said = (self.peers[precision].described or {}) if precision in self.peers else {}
                    if f"{batch} {peer}" in said.get("programs", {}):
                        entries[peer] = (self.peers[precision], f"{batch} {peer}")
                    else:
                        missing[peer] = "it was not made"
                rounds, stopped = take_turns(entries, ROUNDS, TURN_SECONDS, row_end)
                if (precision, batch) in own:
                    own[precision, batch].stop()
                row = row_of(
                    precision, batch, rounds, {**missing, **stopped}, self.profiles.get((precision, batch)), self.rates
                )
                rows.append(row)
                lines.append(line_of(row))
                for peer, reason in row["missing"].items():
                    lines.append(f"    {peer} is missing: {reason}")
                bars += [{**bar, "what": f"{precision} {batch} over {PEERS[bar['over']]}"} for bar in row["bars"]]
                if "images_per_second" in row:
                    self.own_rates[batch] = max(self.own_rates.get(batch, 0), row["images_per_second"]["median"])
        finally:
            for program in own.values():
                program.stop()
        found = {"rows": rows, "lines": lines}
        problem = bars_missed(bars)
        if problem:
            raise Failed(problem, found)
        return found

    def batches(self, seconds):
        program = self.programs / "bench_batches"
        if not program.exists():
            raise Skipped("its program was not built")
        status, output = run([program], seconds, self.out / "programs.log")
        return batches_found(status, output, self.own_rates)


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
        bars.append(
            {
                "what": f"batches of {batch} over the step's own rate",
                "asked": 5.0,
                "measured": ratio,
                "met": ratio is not None and ratio >= 5,
            }
        )
        if batch in made:
            lines.append(
                f"batches of {batch}: {made[batch]:,.0f} images/s" + (f", {ratio:.1f} x the step's own" if ratio else "")
            )
    found = {"images_per_second": {str(batch): rate for batch, rate in made.items()}, "bars": bars, "lines": lines}
    problem = bars_missed(bars)
    if problem:
        raise Failed(problem, found)
    return found
