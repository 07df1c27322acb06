# SPDX-License-Identifier: Apache-2.0
"""The accuracy that the tutorial's network reaches after the same number of images with each way in which four replicas can agree.

    run elastic DATA OUT_DIR [--minutes N] [--images 128000] [--only METHOD,...] [--report] [--save]

DATA is what cifar10_train takes as --data-dir; the binary files are opened fastest. Four replicas of 32 images, a constant rate. Each
method and period has four rates; all of them see --images images, the two best of them twice as many, and the best of those four times as
many, with three seeds. A rate is as good as the model or its moving average, whichever is better. Then the images a second of each method
and period are measured by turns, for which the machine should do nothing else. OUT_DIR/elastic.json has every figure and is written after
each half of --images; a further command with the same OUT_DIR continues there, --minutes ends one early. Where
OUT_DIR has a copy of the file alone, without its checkpoints, runs that are complete are kept and the others begin again. It also
has the page and its picture of what has been measured so far, which --save copies to docs/measurements/; --report only writes them.
"""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import machine

REPLICAS, BATCH = 4, 32
STEP = REPLICAS * BATCH
SEEDS = (1, 2, 3)
PLAIN = (0.05, 0.1, 0.2, 0.4)
MOMENTUM = (0.0125, 0.025, 0.05, 0.1)
OUTER = (0.025, 0.05, 0.1, 0.2)
# DOWNPOUR bears smaller rates at longer periods. One of each is that of another period.
PUSHED = {0: (0.0125, 0.025, 0.05, 0.1), 1: (0.0125, 0.025, 0.05, 0.1), 16: (0.0016, 0.00625, 0.025, 0.1), 64: (0.0004, 0.0016, 0.00625, 0.025)}
PERIODS = (1, 16, 64)
FREE = ["--order", "free"]
# name: (title, flags, periods, rates)
METHODS = {
    "sgd": ("synchronous SGD", ["--optimizer", "sgd"], (0,), PLAIN),
    "nesterov": ("synchronous Nesterov", ["--optimizer", "nesterov-velocity"], (0,), MOMENTUM),
    "local-sgd": ("local SGD", ["--averaging", "local-sgd", "--optimizer", "sgd"], PERIODS, PLAIN),
    "diloco": ("DiLoCo", ["--averaging", "diloco", "--optimizer", "sgd"], PERIODS, OUTER),
    "easgd": ("EASGD", ["--averaging", "elastic", *FREE, "--optimizer", "sgd"], PERIODS, PLAIN),
    "eamsgd": ("EAMSGD", ["--averaging", "elastic", *FREE, "--optimizer", "nesterov-velocity"], PERIODS, MOMENTUM),
    "elastic": ("synchronous EASGD", ["--averaging", "elastic", "--optimizer", "sgd"], (16,), PLAIN),
    "downpour": ("DOWNPOUR", ["--averaging", "downpour", *FREE, "--optimizer", "sgd"], PERIODS, PUSHED),
    "hogwild": ("Hogwild", ["--averaging", "hogwild", "--optimizer", "sgd"], (0,), PUSHED),
}
DIVERGED = re.compile(r"diverged|not finite|is -?(nan|inf)\b")
STAGES = ((4, 1), (2, 2), (1, 4))  # how many rates, and how many times --images
ROUNDS, ROUND_STEPS = 5, 200  # of the images a second


def chunk_steps(images):
    """The steps between two evaluations: half of `images`, in whole periods if it has one, so that the centre is no old one."""
    longest = max(PERIODS)
    return max(1, round(images / 2 / STEP / longest) * longest or round(images / 2 / STEP))


def key_of(method, period, rate, seed):
    return f"{method}-{period}-{rate:g}-{seed}"


def rates_of(method, period):
    rates = METHODS[method][3]
    return rates[period] if isinstance(rates, dict) else rates


def flags_of(method, period, rate, seed):
    every = ["--period", str(period)] if period else []
    return [*METHODS[method][1], *every, "--learning-rate", f"{rate:g}", "--seed", str(seed)]


class Results:
    """The figures of all runs: {key: {"points": [{"images", "model", "average", "spread", "staleness"}], "diverged": message}}; and the
    images a second of each method and period, one figure a round."""

    def __init__(self, folder, images):
        self.file = folder / "elastic.json"
        self.images, self.chunk = images, chunk_steps(images)
        if self.file.exists():
            self.all = json.loads(self.file.read_text())
            if self.all["images"] != images:
                raise SystemExit(f"{self.file} is of --images {self.all['images']}, not {images}: use another folder")
        else:
            self.all = {"machine": machine.describe(), "images": images, "runs": {}}

    def run(self, *of):
        return self.all["runs"].get(key_of(*of)) or {"points": []}

    def steps(self, times):
        """The steps of a run that sees `times` times --images images."""
        return 2 * times * self.chunk

    def is_done(self, times, *of):
        run = self.run(*of)
        return "diverged" in run or len(run["points"]) >= 2 * times

    def accuracy(self, times, *of):
        """After `times` times --images images, that of the model or of its moving average, whichever is better; 0 if it diverged."""
        points = self.run(*of)["points"]
        return max(points[2 * times - 1]["model"], points[2 * times - 1]["average"]) if len(points) >= 2 * times else 0.0

    def best(self, method, period, stage):
        """The rates of a stage, best first in a later one; None if they are not known yet."""
        rates = rates_of(method, period)
        for (_, times), (count, _) in zip(STAGES[:stage], STAGES[1:]):
            if not all(self.is_done(times, method, period, rate, SEEDS[0]) for rate in rates):
                return None
            rates = sorted(rates, key=lambda rate: -self.accuracy(times, method, period, rate, SEEDS[0]))[:count]
        return rates

    def save(self):
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.all, indent=1) + "\n")
        os.replace(new, self.file)


def work_left(results, methods):
    """The next run to extend, (method, period, rate, seed), and to how many times --images; None at the end. All of a stage come first."""
    for stage, (_, times) in enumerate(STAGES):
        for method in methods:
            for period in METHODS[method][2]:
                for rate in results.best(method, period, stage) or ():
                    for seed in SEEDS if stage == len(STAGES) - 1 else SEEDS[:1]:
                        if not results.is_done(times, method, period, rate, seed):
                            return (method, period, rate, seed), times
    return None


def tensors_of(path):
    """The tensors of a .safetensors file of floats or of numbers of 16 bits, by name."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in ("F32", "U16"):
            begin, end = entry["data_offsets"]
            size, letter = (4, "f") if entry["dtype"] == "F32" else (2, "H")
            found[name] = struct.unpack(f"<{(end - begin) // size}{letter}", body[begin:end])
    return found


def spread_of(path):
    """How far the replicas are from the centre, as a part of its length: the root of the mean square; None without a centre."""
    tensors = tensors_of(path)
    names = [name.removeprefix("replica.0.") for name in tensors if name.startswith("replica.0.") and ".optimizer." not in name]
    if not names:
        return None
    length = sum(math.dist(tensors[name], (0.0,) * len(tensors[name])) ** 2 for name in names)
    apart = sum(math.dist(tensors[f"replica.{r}.{name}"], tensors[name]) ** 2 for name in names for r in range(REPLICAS))
    return math.sqrt(apart / REPLICAS / length)


def staleness_of(turns, method, period):
    """The mean number of exchanges of other replicas between two of one, by the turns of an order log; None without two."""
    own, last, seen, exchanges = [0] * REPLICAS, [None] * REPLICAS, [], 0
    for replica in turns:
        # DOWNPOUR exchanges with the last batch of a period, elastic averaging with the first.
        due = (own[replica] + (method == "downpour")) % period == 0
        own[replica] += 1
        if not due:
            continue
        if last[replica] is not None:
            seen.append(exchanges - last[replica] - 1)
        last[replica] = exchanges
        exchanges += 1
    return statistics.mean(seen) if seen else None


def lines_of(options, of, folder, steps, *more):
    """The lines that a training writes, as it continues to a step; the process that has ended if it diverged."""
    command = [
        options.program, "--data-dir", options.data, "--train-dir", folder, "--max-steps", str(steps), "--schedule", "constant",
        "--num-replicas", str(REPLICAS), "--batch-size", str(BATCH), "--checkpoint-every", "0", "--keep-checkpoints", "2",
        "--summary-every", "0", "--log-every", "10", "--json", *flags_of(*of), *more,
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode > 0 and DIVERGED.search(ended.stderr):
        return ended
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with status {ended.returncode}: {ended.stderr.strip()}")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def extend(results, options, of):
    """Trains one more chunk of a run and evaluates it."""
    run, folder = results.all["runs"].setdefault(key_of(*of), {"points": []}), options.out_dir / "runs" / key_of(*of)
    done = len(run["points"]) * results.chunk
    if done and not (folder / f"model-{done}.safetensors").exists():
        # The figures are from another machine, or the folder of the checkpoints was removed.
        print(f"{key_of(*of)}: there is no checkpoint of step {done}, so the run begins again", flush=True)
        run["points"], done = [], 0
    # What a command that was ended has written after the last figures.
    for file in folder.glob("model-*.safetensors"):
        if int(re.search(r"model-(\d+)", file.name)[1]) > done:
            file.unlink()
    if done == 0:
        shutil.rmtree(folder, ignore_errors=True)
    log = folder / "order.safetensors"
    ordered = ["--order-log", log] if "--order" in METHODS[of[0]][1] else []
    folder.parent.mkdir(parents=True, exist_ok=True)
    steps = done + results.chunk
    lines = lines_of(options, of, folder, steps, *ordered, *(["--resume"] if done else []))
    if isinstance(lines, subprocess.CompletedProcess):
        run["diverged"] = lines.stderr.strip()
        shutil.rmtree(folder, ignore_errors=True)
        return
    precision = {line["weights"]: line["precision"] for line in lines if "precision" in line}
    run["points"].append({
        "images": steps * STEP,
        "model": precision["trained parameters"],
        "average": precision["moving averages"],
        "spread": spread_of(folder / f"model-{steps}.safetensors"),
        "staleness": staleness_of(tensors_of(log)["turns"], of[0], of[1]) if ordered else None,
    })  # fmt: skip


def measure_speed(results, options, end):
    """The images a second at the best rate of each method and period, by turns."""
    for number in range(ROUNDS):
        for (method, period), (rate, _) in finals(results).items():
            rounds = results.all.setdefault("images_per_second", {}).setdefault(f"{method}-{period}", [])
            if len(rounds) > number or time.monotonic() >= end:
                continue
            with tempfile.TemporaryDirectory(dir=options.out_dir) as folder:
                lines = lines_of(options, (method, period, rate, SEEDS[0]), pathlib.Path(folder) / "run", ROUND_STEPS)
            rates = [line["examples_per_second"] for line in lines if "examples_per_second" in line]
            rounds.append(statistics.median(rates[1:]))
            results.save()


def forget_dropped(results, options, methods):
    """Removes the checkpoints of rates that no later stage continues."""
    for method in methods:
        for period in METHODS[method][2]:
            for stage in range(1, len(STAGES)):
                kept = results.best(method, period, stage)
                for rate in rates_of(method, period) if kept else ():
                    if rate not in kept:
                        shutil.rmtree(options.out_dir / "runs" / key_of(method, period, rate, SEEDS[0]), ignore_errors=True)


def title_of(method, period):
    return METHODS[method][0] + (f", every {period}" if period else "")


def finals(results):
    """{(method, period): (rate, [run of a seed])} of those whose best rate has been trained to the end, with a seed or more."""
    found = {}
    for method, (_, _, periods, _) in METHODS.items():
        for period in periods:
            best = results.best(method, period, len(STAGES) - 1)
            if not best:
                continue
            runs = [results.run(method, period, best[0], seed) for seed in SEEDS]
            if ended := [run for run in runs if len(run["points"]) >= 2 * STAGES[-1][1]]:
                found[method, period] = best[0], ended
    return found


def mean_of(runs, which, point=-1):
    return statistics.mean(run["points"][point][which] for run in runs)


def better_of(runs, point=-1):
    """The mean accuracy over the seeds, of the models or of the moving averages, whichever is better."""
    return max(mean_of(runs, "model", point), mean_of(runs, "average", point))


COLOURS = {"sgd": "#000000", "nesterov": "#999999", "local-sgd": "#0072b2", "diloco": "#009e73", "easgd": "#e69f00", "eamsgd": "#d55e00", "elastic": "#f0e442",
           "downpour": "#cc79a7", "hogwild": "#56b4e9"}  # fmt: skip


def picture(found):
    """An SVG: at period 16 the accuracy by the images seen, and at the end the accuracy by the period. Without a final run, of nothing."""
    curves = {m: [(p["images"], better_of(runs, i)) for i, p in enumerate(runs[0]["points"])] for (m, k), (_, runs) in found.items() if k in (0, 16)}
    ends = {m: [(k, better_of(found[m, k][1])) for k in METHODS[m][2] if (m, k) in found] for m in METHODS}
    values = [v for points in (*curves.values(), *ends.values()) for _, v in points] or [0.0, 1.0]
    low, high = math.floor(min(values) * 20) / 20, math.ceil(max(values) * 20 + 0.01) / 20
    top, tall, wide = 30, 290, 300

    def y(value):
        return top + tall * (1 - (value - low) / (high - low))

    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="370" font-family="sans-serif" font-size="12">',
        '<rect width="900" height="370" fill="white"/>',
    ]
    for left, title in ((50, "by images seen, period 16"), (400, "at the end, by the period")):
        lines.append(f'<text x="{left + wide / 2}" y="18" text-anchor="middle">Accuracy {title}</text>')
        for number in range(round((high - low) * 20) + 1):
            value = low + number / 20
            lines.append(f'<line x1="{left}" x2="{left + wide}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#dddddd"/>')
            lines.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    most = max((images for points in curves.values() for images, _ in points), default=1)

    def by_images(images):
        return 50 + wide * images / most

    def by_period(period):
        return 400 + 40 + (wide - 80) * PERIODS.index(period) / (len(PERIODS) - 1)

    for part in range(5):
        lines.append(f'<text x="{50 + wide * part / 4}" y="{top + tall + 18}" text-anchor="middle">{most * part / 4000:,.0f}k</text>')
    for period in PERIODS:
        lines.append(f'<text x="{by_period(period)}" y="{top + tall + 18}" text-anchor="middle">{period}</text>')
    for number, (method, points) in enumerate((m, p) for m, p in ends.items() if p):
        colour = COLOURS[method]
        curve = " ".join(f"{by_images(images):.1f},{y(value):.1f}" for images, value in curves.get(method, ()))
        if curve:
            lines.append(f'<polyline points="{curve}" fill="none" stroke="{colour}" stroke-width="2"/>')
        # Without a period it is the same at each.
        of_period = [(period, points[0][1]) for period in PERIODS] if METHODS[method][2] == (0,) else points
        dashed = ' stroke-dasharray="5 4"' if METHODS[method][2] == (0,) else ""
        curve = " ".join(f"{by_period(period):.1f},{y(value):.1f}" for period, value in of_period)
        lines.append(f'<polyline points="{curve}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>')
        lines.append(f'<text x="725" y="{top + 20 + 20 * number}" fill="{colour}">{METHODS[method][0]}</text>')
    return "\n".join([*lines, "</svg>", ""])


def speed_of(results, method, period):
    rounds = results.all.get("images_per_second", {}).get(f"{method}-{period}")
    return f"{statistics.median(rounds):,.0f} ({min(rounds):,.0f} to {max(rounds):,.0f})" if rounds else ""


def cell_of(results, times, *of):
    run = results.run(*of)
    if len(run["points"]) >= 2 * times:
        return f"{results.accuracy(times, *of):.3f}"
    return "diverged" if "diverged" in run else ""


def page_of(results):
    images, found = results.steps(1) * STEP, finals(results)
    rows = []
    for (method, period), (rate, runs) in found.items():
        every = [max(run["points"][-1]["model"], run["points"][-1]["average"]) for run in runs]
        spreads, stale = [[run["points"][-1][which] for run in runs] for which in ("spread", "staleness")]
        rows.append([
            title_of(method, period), f"{rate:g}", len(runs), f"{mean_of(runs, 'model'):.4f}", f"{mean_of(runs, 'average'):.4f}",
            f"{min(every):.4f} to {max(every):.4f}", speed_of(results, method, period),
            f"{statistics.mean(spreads):.3f}" if None not in spreads else "",
            f"{statistics.mean(stale):.2f}" if None not in stale else "",
        ])  # fmt: skip

    def difference(above, below):
        return 100 * (better_of(found[above][1]) - better_of(found[below][1])) if above in found and below in found else None

    def loss_at(rate):
        of = [("downpour", period, rate, SEEDS[0]) for period in (1, 16)]
        return 100 * (results.accuracy(1, *of[0]) - results.accuracy(1, *of[1])) if all(results.is_done(1, *each) for each in of) else None

    limits = [
        machine.bar("DiLoCo every 16 over synchronous SGD, points", difference(("diloco", 16), ("sgd", 0)), least=0),
        machine.bar("EAMSGD every 16 over EASGD every 16, points", difference(("eamsgd", 16), ("easgd", 16)), least=0),
        machine.bar(f"DOWNPOUR at the rate 0.1, every batch over every 16, points after {images:,} images", loss_at(0.1), least=20),
    ]
    tried = []
    for method, (_, _, periods, _) in METHODS.items():
        for period in periods:
            rates = rates_of(method, period)
            cells = [f"{rate:g}: {cell}" for rate in rates if (cell := cell_of(results, 1, method, period, rate, SEEDS[0]))]
            second = [f"{rate:g}: {cell}" for rate in rates if (cell := cell_of(results, 2, method, period, rate, SEEDS[0]))]
            if cells:
                tried.append([title_of(method, period), "; ".join(cells), "; ".join(second)])
    return "\n".join([
        "# Ways in which replicas can agree",
        "",
        f"Written by `tests/benchmarks/run elastic`. The tutorial's network, {REPLICAS} replicas of {BATCH} images, constant rates; accuracy on the test "
        "images of the model (with a centre, the centre) and of its moving average. Four rates of each method and period have seen "
        f"{images:,} images, the two best {2 * images:,}, and the best {4 * images:,} with {len(SEEDS)} seeds. A rate is as good as the model or its "
        "average, whichever is better: a centre is a moving average itself, and at a constant rate those of plain SGD are worth points too. "
        "EASGD, EAMSGD, DOWNPOUR and Hogwild are asynchronous, in free order. Elastic averaging has the moving rate 0.9 / replicas, EAMSGD and "
        "Nesterov the momentum 0.9, DiLoCo the outer rate 0.7 and momentum 0.9.",
        "",
        *machine.lines(results.all["machine"]),
        "",
        *machine.table(["", "bound", "measured", "met"], limits),
        "",
        f"After {4 * images:,} images, means of the seeds. Apart: the distance of the replicas to the centre, over the centre's length. "
        "Staleness: exchanges of other replicas between two of one. "
        f"Images/s: the median, and the range, of {ROUNDS} rounds by turns.",
        "",
        *machine.table(["method", "rate", "seeds", "model", "moving average", "better of both, by seed", "images/s", "apart", "staleness"], rows),
        "",
        "![Accuracy by images seen, and by the period](elastic.svg)",
        "",
        f"The better of both at each rate, after {images:,} and {2 * images:,} images:",
        "",
        *machine.table(["method", f"{images:,}", f"{2 * images:,}"], tried),
        "",
    ])  # fmt: skip


def report(results, options):
    pages = {"elastic.md": page_of(results), "elastic.svg": picture(finals(results))}
    for name, text in pages.items():
        (options.out_dir / name).write_text(text)
    if options.save:
        for name in (*pages, "elastic.json"):
            shutil.copy(options.out_dir / name, machine.MEASUREMENTS / name)
    print(pages["elastic.md"])


def main():
    parser = argparse.ArgumentParser(prog="run elastic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out_dir", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no new work is begun after these")
    parser.add_argument("--images", type=int, default=128_000, help="images that each rate sees at first")
    parser.add_argument("--only", default=",".join(METHODS), help="methods: " + ", ".join(METHODS))
    parser.add_argument("--program", type=pathlib.Path, default=machine.ROOT / "build" / "release" / "examples" / "cifar10_train")
    parser.add_argument("--report", action="store_true", help="trains nothing")
    parser.add_argument("--save", action="store_true", help="copies the page, the picture and the figures to docs/measurements/")
    options = parser.parse_args()
    methods = options.only.split(",")
    if unknown := set(methods) - set(METHODS):
        parser.error(f"--only must name some of {', '.join(METHODS)}, not {', '.join(sorted(unknown))}")
    options.out_dir.mkdir(parents=True, exist_ok=True)
    results, end = Results(options.out_dir, options.images), time.monotonic() + 60 * options.minutes
    while not options.report and time.monotonic() < end and (work := work_left(results, methods)):
        of, _ = work
        extend(results, options, of)
        results.save()
        run = results.run(*of)
        what = run.get("diverged") or "{images:,} images, model {model:.4f}, average {average:.4f}".format(**run["points"][-1])
        print(f"{key_of(*of)}: {what}", flush=True)
        forget_dropped(results, options, methods)
    if not options.report and not work_left(results, methods):
        measure_speed(results, options, end)
    report(results, options)


if __name__ == "__main__":
    sys.exit(main())
