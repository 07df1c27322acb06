# SPDX-License-Identifier: Apache-2.0
"""The small parts of the benchmark: replicas, averaging, augmentation, a whole run, the loss curve in bfloat16, the time of a step by part,
the start of a process, Winograd's convolution, compile times and the sizes of programs. Each is a class with `measure`, `bars` and `text`."""

import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import compile as compiling
import machine
import predict
import turns

EXAMPLES = machine.ROOT / "build" / "release" / "examples"


class Replicas:
    @staticmethod
    def two_processes(options, quiet, threads):
        """The ratio of the work of two independent processes, a replica of 64 on one thread each, to that of one process alone:
    the upper bound for two replicas."""
        command = turns.cupola_step("lrn", "float", 64, threads)
        both = [turns.Program(f"process{i}", command, threads).ready() for i in range(2)]
        amount = turns.amount_for(both[0].work(3), options.turn)
        over = []
        for _ in range(options.rounds):
            result, others, stolen, _ = turns.one_turn(options, both[0], both, amount)
            quiet.note(others, stolen)
            alone = statistics.median(result["seconds"])
            for program in both:
                program.ask(amount)
            together = [statistics.median(program.answer()["seconds"]) for program in both]
            over.append(sum(alone / seconds for seconds in together))
        for program in both:
            program.stop()
        return turns.spread(over)

    @classmethod
    def measure(cls, options, quiet):
        half = options.threads // 2
        described, rounds = turns.take(
            options,
            {
                "1 x 128": turns.cupola_step("lrn", "float", 128, options.threads),
                "2 x 64": turns.cupola_step("lrn", "float", 64, half, 2),
                "1 x 64": turns.cupola_step("lrn", "float", 64, half),
            },
            quiet,
        )
        whole, two, one = (turns.step_seconds(rounds[key]) for key in ("1 x 128", "2 x 64", "1 x 64"))
        scaling = cls.two_processes(options, quiet, half)
        rates = {"1 x 128": [128 / s for s in whole], "2 x 64": [128 / s for s in two], "1 x 64": [64 / s for s in one]}
        return {
            "programs": described,
            "images_per_second": {key: turns.spread(values) for key, values in rates.items()},
            "over_one_of_128": turns.ratios(rates["2 x 64"], rates["1 x 128"]),
            "over_one_of_64": turns.ratios(rates["2 x 64"], rates["1 x 64"]),
            "two_processes": scaling,
        }

    @staticmethod
    def bars(r):
        name = "2 replicas x 64 on one thread each (ConcatMean)"
        return [
            machine.bar(f"{name} over 1 x 128 on two threads", r.get("over_one_of_128"), least=1.0),
            machine.bar(f"{name} over 1 x 64 on one thread", r.get("over_one_of_64"), least=1.9),
            machine.bar("two processes of 1 x 64 at once over one of them alone: what the machine allows", r.get("two_processes")),
        ]

    @staticmethod
    def text(r):
        rows = [[key, r["programs"][key]["how"], turns.text_of(v)] for key, v in r["images_per_second"].items()]
        return ["## Replicas", "", *machine.table(["replicas x batch", "how", "images/s"], rows), ""]


class Averaging:
    @staticmethod
    def measure(options, quiet):
        figures = turns.json_of(options, quiet, [turns.BUILD / "averaging", options.threads, options.rounds])
        return {
            "row_bytes": figures["row_bytes"],
            **{key: turns.spread(figures[key]) for key in ("averaging_ms", "copy_ms", "copy_gigabytes_per_second")},
            "ratio": turns.ratios(figures["averaging_ms"], figures["copy_ms"]),
            "compressed": {key: turns.spread(figures[key]) for key in ("compressed_averaging_ms", "conversion_of_messages_ms")},
            "bytes_sent_per_process": figures["bytes_sent_per_process"],
        }

    @staticmethod
    def bars(r):
        name = "averaging of 4 replicas' gradients (4.27 MB each) over four reads and one write at the copy's rate"
        return [machine.bar(name, r.get("ratio"), most=1.3)]

    @staticmethod
    def compressed_text(r):
        if "compressed" not in r:  # measured before there was compression
            return []
        times, sent = r["compressed"], r["bytes_sent_per_process"]
        return [
            f"`Compressed<ConcatMean>` of the same rows: {turns.text_of(times['compressed_averaging_ms'], 3)} ms. Each of two processes "
            f"that exchange messages sends {sent['bfloat16'] / 1e6:.2f} MB per step instead of {sent['float32'] / 1e6:.2f}, and converts "
            f"for {turns.text_of(times['conversion_of_messages_ms'], 3)} ms.",
            "",
        ]

    @staticmethod
    def text(r):
        return [
            "## Averaging",
            "",
            f"`ConcatMean` over four rows of {r['row_bytes'] / 1e6:.2f} MB: {turns.text_of(r['averaging_ms'], 3)} ms. A copy that reads and "
            f"writes as many bytes: {turns.text_of(r['copy_ms'], 3)} ms, {turns.text_of(r['copy_gigabytes_per_second'], 1)} GB/s read and "
            "written (the better of memcpy and of a loop, on the same threads).",
            "",
            *Averaging.compressed_text(r),
        ]


class Augmentation:
    @staticmethod
    def measure(options, quiet):
        figures = turns.json_of(options, quiet, [turns.BUILD / "augmentation", options.rounds])
        return {key: turns.spread(values) for key, values in figures.items()}

    @staticmethod
    def bars(r):
        return [machine.bar("augmented batches from bytes, images/s per core", r.get("tutorial"), least=200_000, digits=0)]

    @staticmethod
    def text(r):
        titles = {"tutorial": "the tutorial's five augmentations, 24x24", "random_crop_flip": "ResNet's padding, crop and flip, 32x32",
                  "center_crop": "the test's central crop, 24x24"}  # fmt: skip
        rows = [[titles[key], turns.text_of(v)] for key, v in r.items()]
        return [
            "## Augmentation",
            "",
            "Batches of 128 out of 50,000 random images of bytes in memory, shuffled, as `TrainingBatches` fills them, on one thread.",
            "",
            *machine.table(["transform", "images/s"], rows),
            "",
        ]


class WholeRun:
    STEPS = 200

    @classmethod
    def one_run(cls, options, steps):
        """The images per second of the steps from 11 on, with all pauses between them, and the share of the summaries in percent."""
        with tempfile.TemporaryDirectory() as folder:
            command = [
                EXAMPLES / "cifar10_train", "--train-dir", folder, "--max-steps", str(steps + 1), "--log-every", "10", "--json",
                "--summary-every", "100", "--checkpoint-every", "1000", "--threads-per-device", str(options.threads),
            ]  # fmt: skip
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"step"')]
        taken = [line for line in lines if line["step"] > 10]
        rate = len(taken) * 10 * 128 / sum(10 * 128 / line["examples_per_second"] for line in taken)
        return rate, float(re.search(r"summaries took ([\d.]+) %", output)[1])

    @classmethod
    def measure(cls, options, quiet):
        steps = max(30, min(cls.STEPS, round(cls.STEPS * options.turn / 10) * 10))
        bare = turns.Program("cupola", turns.cupola_step("lrn", "float", 128, options.threads, "winograd"), options.threads).ready()
        amount = turns.amount_for(bare.work(3), 2 * options.turn)
        runs, summaries, steps_alone = [], [], []
        for number in range(options.rounds):
            result, others, stolen, _ = turns.one_turn(options, bare, [bare], amount)
            quiet.note(others, stolen)
            steps_alone.append(128 / statistics.median(result["seconds"]))
            machine.wait_until_quiet(options.disturbed, options.wait, 0.3)
            rate, share = cls.one_run(options, steps)
            runs.append(rate)
            summaries.append(share)
            print(f"round {number + 1}: a run {runs[-1]:.0f}, the bare step {steps_alone[-1]:.0f} images/s", flush=True)
        bare.stop()
        return {
            "steps": steps, "run": turns.spread(runs), "bare": turns.spread(steps_alone), "ratio": turns.ratios(runs, steps_alone),
            "summaries": turns.spread(summaries),
        }  # fmt: skip

    @staticmethod
    def bars(r):
        return [
            machine.bar("a whole cifar10_train run (prefetch, logs, summaries) over the bare step", r.get("ratio"), least=0.95),
            machine.bar("the summaries' share of its time, a summary every 100 steps", r.get("summaries"), most=2, unit=" %"),
        ]

    @staticmethod
    def text(r):
        return [
            "## A whole run",
            "",
            f"`cifar10_train` on its sample with `--train-dir`: augmentations, prefetch, a log line every 10 steps, a summary for TensorBoard "
            f"every 100 and moving averages; {r['steps']} steps, pauses included: {turns.text_of(r['run'])} images/s. The bare step, on "
            f"samples in memory and without moving averages: {turns.text_of(r['bare'])} images/s.",
            "",
        ]


class Curve:
    STEPS, WINDOW = 2000, 100

    @classmethod
    def losses(cls, steps, *words):
        command = [EXAMPLES / "cifar10_train", "--max-steps", str(steps), "--log-every", "1", "--json", *words]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        losses = [json.loads(line)["loss"] for line in output.splitlines() if line.startswith('{"step"')]
        window = min(cls.WINDOW, steps // 4)
        return [statistics.mean(losses[i : i + window]) for i in range(0, len(losses), window)]

    @classmethod
    def measure(cls, options, quiet):
        steps = cls.STEPS if options.rounds > 1 else 40
        runs = {
            "float": cls.losses(steps, "--precision", "float", "--seed", "1"),
            "bf16": cls.losses(steps, "--precision", "bf16", "--seed", "1"),
            "float, another seed": cls.losses(steps, "--precision", "float", "--seed", "2"),
        }
        apart = {key: max(abs(a - b) / b for a, b in zip(runs[key], runs["float"])) for key in ("bf16", "float, another seed")}
        return {"steps": steps, "window": min(cls.WINDOW, steps // 4), "losses": runs, "apart": apart}

    @staticmethod
    def bars(r):
        name = "bfloat16's curve of the training loss apart from float's, over that of another seed"
        return [machine.bar(name, r["apart"]["bf16"] / r["apart"]["float, another seed"] if r else None, most=1.0)]

    @staticmethod
    def text(r):
        rows = [[(i + 1) * r["window"], *(f"{r['losses'][key][i]:.4f}" for key in r["losses"])] for i in range(len(r["losses"]["float"]))]
        return [
            "## The training loss in bfloat16",
            "",
            f"`cifar10_train` on its sample, {r['steps']} steps of 128, the mean loss of each {r['window']} steps. Largest distance from float: "
            f"bfloat16 {r['apart']['bf16']:.2%}, float with another seed {r['apart']['float, another seed']:.2%}.",
            "",
            *machine.table(["steps", *r["losses"]], rows),
            "",
        ]


class Profile:
    RUNS = {"tutorial network, float": (), "tutorial network, bfloat16": ("--precision", "bf16"), "ResNet-44, float": ("--model", "resnet")}

    @classmethod
    def measure(cls, options, quiet):
        tables = {}
        for title, words in cls.RUNS.items():
            machine.wait_until_quiet(options.disturbed, options.wait)
            command = [EXAMPLES / "cifar10_train", "--profile", "--threads-per-device", str(options.threads), *words]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            first = next(i for i, line in enumerate(lines) if line.startswith("name") and "bound ms" in line)
            tables[title] = [line.rstrip() for line in lines[first:]]
        return tables

    @staticmethod
    def bars(r):
        return []

    @staticmethod
    def text(r):
        lines = ["## Where the time of a step goes", "", "As `cifar10_train --profile` prints it, batch 128.", ""]
        for title, table in r.items():
            lines += [f"{title[0].upper()}{title[1:]}:", "", "```text", *table, "```", ""]
        return lines


class Start:
    @staticmethod
    def measure(options, quiet):
        words = ("lrn", "float", 128, options.threads)
        commands = {
            "cupola": turns.cupola_step(*words),
            "torch": [machine.PEERS / "torch/bin/python", turns.HERE / "peers/torch_step.py", *words],
            "tensorflow": [machine.PEERS / "tensorflow/bin/python", turns.HERE / "peers/tensorflow_step.py", *words],
        }
        seconds = {key: [] for key in commands}
        for number in range(min(3, options.rounds) + 1):
            for key, command in commands.items():
                machine.wait_until_quiet(options.disturbed, options.wait, 0.3)
                program = turns.Program(key, command, options.threads, WARM_UP="1").ready()
                program.stop()
                if number > 0:  # the first run reads files from the disk
                    seconds[key].append(program.start_seconds)
                    print(f"round {number}: {key}: {program.start_seconds:.3f} s to the first step", flush=True)
        result = {"seconds": {key: turns.spread(values) for key, values in seconds.items()}}
        for peer in ("torch", "tensorflow"):
            result[f"over_{peer}"] = turns.ratios(seconds["cupola"], seconds[peer])
        return result

    @staticmethod
    def bars(r):
        name = "time from process start to the first step done over PyTorch's"
        return [machine.bar(name, r.get("over_torch"), most=0.1, digits=3)]

    @staticmethod
    def text(r):
        titles = {"cupola": "Cupola", "torch": "PyTorch", "tensorflow": "TensorFlow"}
        rows = [[titles[key], turns.text_of(v, 3)] for key, v in r["seconds"].items()]
        return ["## From the start of the process to the first step done", "", *machine.table(["program", "seconds"], rows), ""]


class Winograd:
    PROGRAM = turns.BUILD / "winograd"

    @classmethod
    def measure(cls, options, quiet):
        if not cls.PROGRAM.exists():
            print("winograd is not built", flush=True)
            return {}
        return turns.json_of(options, quiet, [cls.PROGRAM, options.threads, 3 * options.rounds])

    @staticmethod
    def bars(r):
        rows = []
        for direction, title in (("forward", "forward"), ("data", "backward data")):
            of = [c for c in r.get("cases", []) if c["direction"] == direction and "conv2" in c["case"]]
            name = f"conv2 by Winograd over oneDNN's direct, {title}"
            best = max(of, key=lambda c: c["ratio"], default=None)
            rows.append(machine.bar(name, best and best["ratio"], least=1.2))
            rows.append([f"its error, {title}", "<= 1e-4", *([f"{best['winograd_error']:.1e}", "yes" if best["winograd_error"] <= 1e-4 else "no"] if best
                        else ["not measured", ""])])  # fmt: skip
        return rows

    @staticmethod
    def text(r):
        if not r:
            return []
        rows = [
            [c["case"], c["direction"], f"{c['direct_ms']:.3f}", f"{c['winograd_ms']:.3f}", f"{c['ratio']:.2f}",
             *([f"{c['direct_error']:.1e}", f"{c['winograd_error']:.1e}"] if c["direction"] != "packing" else ["", ""])]
            for c in r["cases"]
        ]  # fmt: skip
        return [
            "## Winograd's convolution",
            "",
            f"Batch {r['batch']}, float, weights packed before; the packing apart. The error is that of the norm, to double.",
            "",
            *machine.table(["convolution", "direction", "oneDNN direct, ms", "Winograd, ms", "ratio", "error, direct", "error"], rows),
            "",
        ]


class Compile:
    """The page of compile.py has the details."""

    @staticmethod
    def measure(options, quiet):
        words = ["--rounds", str(min(3, options.rounds))]
        chosen = [name for name in (options.only or "").split(",") if name in compiling.PARTS]
        if chosen or options.rounds == 1:
            words += ["--only", ",".join(chosen or ["cifar10"])]
        if options.no_save:
            words += ["--no-save"]
        measured = compiling.measure(compiling.options_of(words))
        quiet.note(measured["others_busy"], 0.0)
        with tempfile.TemporaryDirectory() as folder:
            sizes = {name: predict.sizes_of(EXAMPLES / name, pathlib.Path(folder)) for name in ("cifar10_train", "predict")}
        return {
            "figures": measured["figures"],
            "ratios": measured["ratios"],
            "stripped_bytes": {name: size for name, (size, _) in sizes.items()},
            "library_bytes": {name: libraries for name, (_, libraries) in sizes.items()},
        }

    @staticmethod
    def bars(r):
        ratios = r.get("ratios", {})
        sizes = {name: size / 1e6 for name, size in r.get("stripped_bytes", {}).items()}
        compiled, headers = ratios.get("compiled", {}), ratios.get("headers", {})
        growth = ratios.get("growth, g++ with cupola::compiled")
        # A further layer costs the same in a long network as in a short one, with a tolerance for the precision of the clock.
        slopes = [growth[f"ms_per_layer_{span}"] for span in ("20_to_100", "100_to_400")] if growth else []
        linear = ["compiling 400 layers: ms per layer from 100 on", "as from 20 to 100"]
        linear += [f"{slopes[1]:.1f} (before: {slopes[0]:.1f})", "yes" if slopes[1] <= max(1.25 * slopes[0], 5.0) else "no"] if slopes else [
            "not measured", ""]  # fmt: skip
        return [
            machine.bar("compiling one file, -O2, g++, with cupola::compiled: seconds over dlib's", compiled.get("seconds"), most=0.25),
            machine.bar("compiling one file, -O2, g++, with cupola::compiled: memory over dlib's", compiled.get("megabytes"), most=0.5),
            machine.bar("the same with headers alone: seconds", headers.get("seconds"), most=0.78),
            machine.bar("the same with headers alone: memory", headers.get("megabytes")),
            linear,
            machine.bar("stripped cifar10_train, MB", sizes.get("cifar10_train"), most=2.5),
            machine.bar("stripped predict example, MB", sizes.get("predict"), most=1.0),
        ]

    @staticmethod
    def text(r):
        rows = [[k, f"{v['seconds']:.2f}", f"{v['megabytes']:.0f}"] for k, v in r["figures"].get("cifar10", {}).items()]
        return [
            "## Compiling, and sizes",
            "",
            "[compile.md](compile.md) has the networks of 20, 100 and 400 layers.",
            "",
            *machine.table(["one file to one object, -O2", "seconds", "MB"], rows),
            "",
            f"Stripped, vendor libraries aside: cifar10_train {r['stripped_bytes']['cifar10_train'] / 1000:,.0f} kB, the predict example "
            f"{r['stripped_bytes']['predict'] / 1000:,.0f} kB.",
            "",
        ]
