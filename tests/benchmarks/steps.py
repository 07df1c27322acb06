# SPDX-License-Identifier: Apache-2.0
"""The training step: each network in each precision, compared with Cupola's peers and with the sum of the step's operations as single
oneDNN primitives; and the rate of a large matrix product, which is the limit."""

import statistics

import machine
import turns

# The multiply-adds per sample, forward and backward; for a convolution, those at window positions inside the image.
GFLOP_PER_SAMPLE = {"lrn": 2 * 43_703_424 / 1e9, "plain": 2 * 43_703_424 / 1e9, "mlp": 2 * (2 * 784 * 128 + 3 * 128 * 10) / 1e9}

# name: (network, precision, batch, programs besides Cupola and the primitives, title)
CONFIGURATIONS = {
    "lrn-float": ("lrn", "float", 128, ("direct", "unfused", "tensorflow", "torch"), "tutorial network, float, with LRN"),
    "plain-float": ("plain", "float", 128, ("direct", "tensorflow", "torch", "dlib"), "tutorial network, float, without LRN"),
    "lrn-bf16": ("lrn", "bfloat16", 128, ("direct", "own-float", "own-winograd", "tensorflow", "torch"), "tutorial network, bfloat16, with LRN"),
    "plain-bf16": ("plain", "bfloat16", 128, ("direct", "own-float", "tensorflow", "torch"), "tutorial network, bfloat16, without LRN"),
    "resnet44": ("resnet44", "float", 128, ("direct", "tensorflow", "torch"), "ResNet-44, 32x32, float"),
    "mlp": ("mlp", "float", 32, ("tensorflow", "torch"), "MLP 784-128-10, batch 32, float"),
}


def add_options(parser):
    parser.add_argument("--only", help="for the part steps: the networks; for the part compile: cifar10,zoo,layers,cuda")
    parser.add_argument("--programs", default="", help="for the part steps: some of cupola, primitives and the peers")


def commands_of(name, options):
    network, precision, batch, beside, _ = CONFIGURATIONS[name]
    words, threads = (network, precision, batch, options.threads), options.threads
    # cifar10_train uses Winograd's convolutions; oneDNN's primitives are compared with the direct ones.
    fast = ("winograd",) if "direct" in beside else ()
    known = {
        "cupola": turns.cupola_step(*words, *fast),
        "direct": turns.cupola_step(*words),
        "unfused": turns.cupola_step(*words, "unfused"),
        "own-float": turns.cupola_step(network, "float", batch, threads),
        "own-winograd": turns.cupola_step(network, "float", batch, threads, "winograd"),
        # In the faster of their modes. dlib, oneDNN and ONNX Runtime select code by the processor themselves.
        "tensorflow": turns.Modes(
            [machine.PEERS / "tensorflow/bin/python", turns.HERE / "peers/tensorflow_step.py", *words], turns.TENSORFLOW_MODES
        ),
        "torch": turns.Modes([machine.PEERS / "torch/bin/python", turns.HERE / "peers/torch_step.py", *words], turns.TORCH_MODES),
        "dlib": [turns.BUILD / "dlib_step", *words],
        "primitives": [turns.BUILD / "onednn_primitives", batch, network, precision],
    }
    wanted = options.programs.split(",") if options.programs else ("cupola", *beside, "primitives")
    return {key: known[key] for key in wanted if key in ("cupola", "primitives", *beside)}


def figures_of(name, rounds):
    network, _, batch, beside, _ = CONFIGURATIONS[name]
    step = {key: turns.step_seconds(r) for key, r in rounds.items() if key != "primitives"}
    figures = {
        "milliseconds": {key: turns.spread([1e3 * s for s in values]) for key, values in step.items()},
        "samples_per_second": {key: turns.spread([batch / s for s in values]) for key, values in step.items()},
        "ratios": {},
    }
    ratios, own = figures["ratios"], step.get("cupola")
    if own:
        for peer in beside:
            if peer in step:
                ratios[peer] = turns.ratios(step[peer], own)
        if "tensorflow" in step and "torch" in step:
            ratios["better_peer"] = turns.ratios([min(pair) for pair in zip(step["tensorflow"], step["torch"])], own)
    if "primitives" in rounds:
        alone = rounds["primitives"]
        figures["primitives"] = {
            **{key: turns.spread([r[key] for r in alone]) for key in ("sum_median", "sum_best", "sum_layers")},
            "matmul_gflops": turns.spread([r["matmul_gflops_median"] for r in alone]),
            "parts": [
                {
                    **part,
                    "best": min(r["parts"][i]["best"] for r in alone),
                    "median": statistics.median(r["parts"][i]["median"] for r in alone),
                }
                for i, part in enumerate(alone[0]["parts"])
            ],
        }
        if own:
            for key, program in (("primitives", own), ("primitives_direct", step.get("direct"))):
                if program:
                    ratios[key] = turns.ratios([1e3 * s for s in program], [r["sum_median"] for r in alone])
                    ratios[f"{key}_layers"] = turns.ratios([1e3 * s for s in program], [r["sum_layers"] for r in alone])
            if network in GFLOP_PER_SAMPLE:
                rates = [r["matmul_gflops_median"] for r in alone]
                floor = [batch * GFLOP_PER_SAMPLE[network] / rate for rate in rates]
                ratios["limit"] = turns.ratios(floor, own)
                if "torch" in step:
                    ratios["limit_over_torch"] = turns.ratios(step["torch"], floor)
    return figures


def measure(options, quiet):
    results = {}
    for name in (options.only or ",".join(CONFIGURATIONS)).split(","):
        if name not in CONFIGURATIONS:
            raise SystemExit(f"--only must name some of {', '.join(CONFIGURATIONS)}, not {name}")
        print(f"-- {name}", flush=True)
        described, rounds = turns.take(options, commands_of(name, options), quiet)
        results[name] = {"programs": described, **figures_of(name, rounds)}
    return results


PEERS = {"tensorflow": "TensorFlow", "torch": "PyTorch", "own-float": "Cupola's float (direct convolutions)", "better_peer": "the better of TensorFlow and PyTorch"}
# Per configuration: the ratios that must be reached, then the limit of the ratio to the primitives.
ASKED = {
    "lrn-float": ({"tensorflow": 1.9, "torch": 3.2, "limit": 0.88}, 1.0),
    "plain-float": ({"tensorflow": 1.35, "torch": 2.1}, 1.0),
    "lrn-bf16": ({"tensorflow": 2.5, "torch": 4.5, "own-float": 1.7}, 1.05),
    "plain-bf16": ({}, 1.05),
    "resnet44": ({"better_peer": 1.3}, 1.0),
    "mlp": ({"torch": 5.0, "tensorflow": 3.0}, 1.0),
}


def bars(results):
    rows = []
    for name, (least, most) in ASKED.items():
        title, ratios = CONFIGURATIONS[name][4], results.get(name, {}).get("ratios", {})
        rows.append(machine.bar(f"{title}: a step over its operations as oneDNN primitives alone", ratios.get("primitives"), most=most))
        if "direct" in CONFIGURATIONS[name][3]:
            rows.append(machine.bar(f"{title}: the same with oneDNN's direct convolutions", ratios.get("primitives_direct"), most=most))
        for key, factor in least.items():
            what = "of the limit" if key == "limit" else f"over {PEERS[key]}"
            rows.append(machine.bar(f"{title}: {what}", ratios.get(key), least=factor))
        if "own-winograd" in CONFIGURATIONS[name][3]:
            rows.append(machine.bar(f"{title}: over Cupola's float (Winograd)", ratios.get("own-winograd")))
        if name == "mlp":  # small matrix products take most of the step here: the ratio for a step that consists of nothing else
            rows.append(machine.bar(f"{title}: what the products alone, at the limit, would be over PyTorch", ratios.get("limit_over_torch")))
    programs = results.get("lrn-float", {}).get("programs", {})
    for peer in ("torch", "tensorflow"):
        both = programs.get("cupola"), programs.get(peer)
        share = both[0]["peak_megabytes"] / both[1]["peak_megabytes"] if all(both) else None
        rows.append(machine.bar(f"peak memory of training (tutorial network, float) over {PEERS[peer]}'s", share, most=0.35))
    return rows


def text(results):
    lines = [
        "## The training step",
        "",
        "Synthetic samples in memory, plain SGD (momentum for ResNet-44). TensorFlow and PyTorch run in the fastest of their modes on this "
        "processor, tried before the rounds. Cupola's convolutions are by Winograd's algorithm where it is faster, as "
        "`cifar10_train` has them, and direct where the line does not say so. dlib has no LRN. The primitives are those of a step, the same "
        "oneDNN called directly, each over and over on buffers of its own; loss, update and the linear layers' bias gradients are among "
        "them, as primitives that oneDNN has for them. The limit is the step's floating-point operations (11.19 GFLOP for 128 images of the "
        "tutorial's, taps inside the image) at the rate of a matrix product of 2048 x 2048 x 2048.",
        "",
    ]
    for name, result in results.items():
        network, precision, batch, _, title = CONFIGURATIONS[name]
        lines += [f"### {title[0].upper()}{title[1:]}", ""]
        ratios = result["ratios"]
        lines += machine.table(
            ["program", "how", "samples/s", "ms/step", "Cupola over it", "peak MB"],
            [
                [
                    f"{described['name']} {described['version']}{', float' if key.startswith('own-') else ''}",
                    described["how"],
                    turns.text_of(result["samples_per_second"][key]),
                    turns.text_of(result["milliseconds"][key], 1 if batch > 32 else 3),
                    turns.text_of(ratios[key], 2) if key in ratios else "",
                    f"{described['peak_megabytes']:.0f}",
                ]
                for key, described in result["programs"].items()
                if key in result["milliseconds"]
            ],
        )
        missing = [f"{key} ({why})" for key, why in result["programs"].get("missing", {}).items()]
        if missing:
            lines += ["", f"Not there: {'; '.join(missing)}"]
        if "primitives" in result:
            alone = result["primitives"]
            digits = 2 if batch > 32 else 4
            words = (
                f"oneDNN {result['programs']['primitives']['version']}: the primitives of a step, each alone, "
                f"{turns.text_of(alone['sum_median'], digits)} ms (of the best times {turns.text_of(alone['sum_best'], digits)}; without loss, "
                f"update and the linear layers' bias gradients {turns.text_of(alone['sum_layers'], digits)}); the large matrix product "
                f"{turns.text_of(alone['matmul_gflops'])} GFLOP/s."
            )
            if "primitives" in ratios:
                words += f" A step over their sum: {turns.text_of(ratios['primitives'], 2)}; over that of the layers' alone: "
                words += f"{turns.text_of(ratios['primitives_layers'], 2)}."
                if "primitives_direct" in ratios:
                    words += f" With direct convolutions: {turns.text_of(ratios['primitives_direct'], 2)} and "
                    words += f"{turns.text_of(ratios['primitives_direct_layers'], 2)}."
            if "limit" in ratios:
                words += f" Of the limit: {turns.text_of(ratios['limit'], 2)}."
            lines += ["", words, "", "<details><summary>Each primitive</summary>", ""]
            lines += machine.table(
                ["primitive alone", "times", "ms, median", "ms, best", "GFLOP/s"],
                [
                    [
                        part["name"],
                        part["count"],
                        f"{part['median']:.{digits + 1}f}",
                        f"{part['best']:.{digits + 1}f}",
                        f"{part['gflop'] / part['best'] * 1e3:.0f}" if part["gflop"] else "",
                    ]
                    for part in alone["parts"]
                ],
            )
            lines += ["", "</details>"]
        lines += [""]
    return lines
