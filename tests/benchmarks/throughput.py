# SPDX-License-Identifier: Apache-2.0
"""The training step of the tutorial's network, side by side: Cupola, TensorFlow, PyTorch, and oneDNN's primitives alone.

Every program is started once and warmed up; then they take turns, one working while the others wait in a read, for several
rounds in changing order. Ratios are taken within a round and their median is reported, so that a machine which slows down does
not favour anyone. Usage: run throughput [--rounds N] [--steps N] [--batch N] [--threads N] [--only NAMES] [--no-save]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import machine

HERE = machine.ROOT / "tests" / "benchmarks"
GFLOP_A_BATCH_IMAGE = 2 * 43_703_424 / 1e9  # multiply-adds whose tap lies inside the image, forward and backward


NAMES = {"cupola": "Cupola", "unfused": "Cupola", "tensorflow": "TensorFlow", "torch": "PyTorch"}


class Program:
    def __init__(self, key, command, environment):
        self.key, self.rounds = key, []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            stderr=(machine.PEERS / f"{key}.log").open("w"),
        )

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.key} stopped: see {machine.PEERS / (self.key + '.log')}")

    def work(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self.answer()

    def seconds(self):
        return machine.process_seconds(self.process.pid)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def programs(options):
    # The same processors for each: a peer that starts more threads than it was told to gains nothing by it.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    threads, batch = str(options.threads), str(options.batch)
    environment = {"OMP_NUM_THREADS": threads}
    build = machine.PEERS / "build"
    known = {
        "unfused": [str(build / "cifar10_step"), threads, batch, "unfused"],
        "cupola": [str(build / "cifar10_step"), threads, batch],
        "tensorflow": [
            str(machine.PEERS / "tensorflow/bin/python"),
            str(HERE / "peers/tensorflow_cifar10.py"),
            threads,
            batch,
        ],
        "torch": [str(machine.PEERS / "torch/bin/python"), str(HERE / "peers/torch_cifar10.py"), threads, batch],
        "primitives": [str(build / "onednn_primitives"), batch],
    }
    return [Program(key, known[key], environment) for key in options.only.split(",")]


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def text_of(value, digits=0):
    return f"{value['median']:.{digits}f} ({value['least']:.{digits}f} to {value['most']:.{digits}f})"


def one_turn(options, program, running):
    """What the program answered, the shares of the machine that others used and that its host took, and what share of a
    processor each waiting program used."""
    time.sleep(0.5)  # threads that still spin after their last region go to sleep
    machine.wait_until_quiet(options.disturbed, options.wait)
    busy, steal = machine.busy_seconds()
    before = {other.key: other.seconds() for other in running}
    start = time.perf_counter()
    result = program.work(options.repetitions if program.key == "primitives" else options.steps)
    elapsed = time.perf_counter() - start
    used = {other.key: other.seconds() - before[other.key] for other in running}
    busy_after, steal_after = machine.busy_seconds()
    all_of_it = elapsed * os.cpu_count()
    idle = {key: seconds / elapsed for key, seconds in used.items() if key != program.key}
    return result, max(0.0, busy_after - busy - used[program.key]) / all_of_it, (steal_after - steal) / all_of_it, idle


def measure(options):
    running = programs(options)
    described, awake = {}, {}
    for program in running:
        described[program.key] = program.answer()
        print(f"{described[program.key]['name']} {described[program.key]['version']} is ready", flush=True)
    others_busy, stolen, repeated = [], [], 0
    for number in range(options.rounds):
        order = running[number % len(running) :] + running[: number % len(running)]
        for program in order:
            for _ in range(options.patience + 1):
                result, disturbance, taken, idle = one_turn(options, program, running)
                if disturbance <= options.disturbed:
                    break
                repeated += 1
            for key, share in idle.items():
                awake[key] = max(awake.get(key, 0.0), share)
            others_busy.append(disturbance)
            stolen.append(taken)
            program.rounds.append(result)
            rate = (
                f"{result['sum_best']:.2f} ms"
                if program.key == "primitives"
                else f"{options.batch / statistics.median(result['seconds']):.0f} images/s"
            )
            print(
                f"round {number + 1}: {described[program.key]['name']:11} {rate}, others used {others_busy[-1]:.0%} of the machine",
                flush=True,
            )
    for program in running:
        program.stop()
        if awake[program.key] > 0.02:
            raise SystemExit(f"{program.key} used {awake[program.key]:.0%} of a processor while another was measured")
    quiet = {"others_busy": max(others_busy), "stolen": max(stolen), "turns_repeated": repeated}
    return described, {program.key: program.rounds for program in running}, quiet


def evaluate(options, described, rounds):
    """Figures and ratios, each a median over the rounds with the least and the most."""
    figures, ratios = {}, {}
    step = {}
    for key in NAMES:
        if key in rounds:
            step[key] = [1e3 * statistics.median(r["seconds"]) for r in rounds[key]]
            figures[key] = {
                "milliseconds": spread(step[key]),
                "images_per_second": spread([1e3 * options.batch / s for s in step[key]]),
                "best_images_per_second": options.batch / min(min(r["seconds"]) for r in rounds[key]),
            }
    if "primitives" in rounds:
        figures["primitives"] = {
            "sum_best": spread([r["sum_best"] for r in rounds["primitives"]]),
            "sum_median": spread([r["sum_median"] for r in rounds["primitives"]]),
            "matmul_gflops": spread([r["matmul_gflops_median"] for r in rounds["primitives"]]),
            "parts": [
                {
                    "name": p["name"],
                    "best": min(r["parts"][i]["best"] for r in rounds["primitives"]),
                    "median": statistics.median(r["parts"][i]["median"] for r in rounds["primitives"]),
                    "gflop": p["gflop"],
                }
                for i, p in enumerate(rounds["primitives"][0]["parts"])
            ],
        }
    if "cupola" in step:
        for peer in ("tensorflow", "torch"):
            if peer in step:
                ratios[f"cupola_over_{peer}"] = spread([p / c for p, c in zip(step[peer], step["cupola"])])
        if "primitives" in rounds:
            for kind in ("median", "best"):
                ratios[f"step_over_primitives_{kind}"] = spread(
                    [c / r[f"sum_{kind}"] for c, r in zip(step["cupola"], rounds["primitives"])]
                )
            ratios["of_the_matmul_limit"] = spread(
                [
                    options.batch * GFLOP_A_BATCH_IMAGE / (c / 1e3) / r["matmul_gflops_median"]
                    for c, r in zip(step["cupola"], rounds["primitives"])
                ]
            )
    return figures, ratios


def page(options, described, figures, ratios, computer, quiet):
    text = [
        "# Throughput of the training step",
        "",
        f"`tests/benchmarks/run throughput`: the tutorial's network (24x24x3, with LRN, L2 on local3 and local4, plain SGD), float, batch "
        f"{options.batch}, {options.threads} threads, synthetic images in memory. The programs take turns in one run: {options.rounds} "
        f"rounds of {options.steps} steps. Medians over the rounds, with the least and the most.",
        "",
        *machine.lines(computer),
        f"- others used at most {quiet['others_busy']:.1%} of the machine during a turn, its host took {quiet['stolen']:.1%}; "
        f"{quiet['turns_repeated']} turns were repeated because others used more than {options.disturbed:.0%}",
        "",
    ]
    rows = [
        [
            f"{NAMES[k]} {described[k]['version']}",
            described[k]["how"],
            text_of(figures[k]["images_per_second"]),
            text_of(figures[k]["milliseconds"], 1),
            f"{figures[k]['best_images_per_second']:.0f}",
        ]
        for k in NAMES
        if k in figures
    ]
    text += machine.table(["program", "how", "images/s", "ms a step", "images/s, best step"], rows) + [""]
    titles = {
        "cupola_over_tensorflow": ("Cupola over TensorFlow", "at least 1.5"),
        "cupola_over_torch": ("Cupola over PyTorch", ""),
        "step_over_primitives_median": ("a step over the sum of its primitives alone, medians", "at most 1.15"),
        "step_over_primitives_best": ("a step over the sum of its primitives' best times", ""),
        "of_the_matmul_limit": ("share of the large matmul's rate (11.19 GFLOP a step of 128)", ""),
    }
    text += machine.table(
        ["ratio", "measured", "asked for"], [[titles[k][0], text_of(v, 2), titles[k][1]] for k, v in ratios.items()]
    )
    if "primitives" in figures:
        p = figures["primitives"]
        text += [
            "",
            f"oneDNN {described['primitives']['version']}: matmul 2048x2048x2048 {text_of(p['matmul_gflops'])} GFLOP/s; the primitives of a "
            f"step, each alone: {text_of(p['sum_median'], 2)} ms (sum of medians), {text_of(p['sum_best'], 2)} ms (sum of the best). They leave out "
            "the loss, the bias gradients of the linear layers and the update of the parameters.",
            "",
        ]
        text += machine.table(
            ["primitive alone", "ms, median", "ms, best", "GFLOP/s"],
            [
                [
                    q["name"],
                    f"{q['median']:.3f}",
                    f"{q['best']:.3f}",
                    f"{q['gflop'] / q['best'] * 1e3:.0f}" if q["gflop"] else "",
                ]
                for q in p["parts"]
            ],
        )
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="run throughput")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repetitions", type=int, default=15, help="of each primitive in a round")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--disturbed", type=float, default=0.04, help="a turn is repeated when others used more of the machine"
    )
    parser.add_argument(
        "--wait", type=float, default=20, help="seconds to wait for a quiet machine before a turn, at most"
    )
    parser.add_argument("--patience", type=int, default=5, help="times that a turn is repeated, at most")
    parser.add_argument("--only", default="cupola,unfused,tensorflow,torch,primitives")
    parser.add_argument("--no-save", action="store_true", help="print, but leave docs/measurements alone")
    options = parser.parse_args()
    computer = machine.describe()
    if options.threads > computer["cores"]:
        raise SystemExit(f"{options.threads} threads were asked for and this machine has {computer['cores']} cores")
    described, rounds, quiet = measure(options)
    figures, ratios = evaluate(options, described, rounds)
    text = page(options, described, figures, ratios, computer, quiet)
    print("\n" + text)
    if not options.no_save:
        machine.MEASUREMENTS.mkdir(parents=True, exist_ok=True)
        (machine.MEASUREMENTS / "throughput.md").write_text(text)
        (machine.MEASUREMENTS / "throughput.json").write_text(
            json.dumps(
                {
                    "machine": computer,
                    "options": {k: v for k, v in vars(options).items() if k != "no_save"},
                    "programs": described,
                    "figures": figures,
                    "ratios": ratios,
                    "quiet": quiet,
                },
                indent=1,
            )
            + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
