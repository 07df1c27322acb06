# SPDX-License-Identifier: Apache-2.0
"""Networks for photographs: a training step compared by turns with PyTorch in its fastest mode (NCHW or channels-last, eager or compiled),
and a prediction with ONNX Runtime, which reads the same weights as convert writes them.

Usage: run vision [--only resnet50,resnet50-frozen,mobilenet_v2,unet,predict] [--no-save] and the options of turns.py. With --only nothing is
written: the page is of one run.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import inference
import machine
import turns

TORCH, SCRIPT = machine.PEERS / "torch/bin/python", turns.HERE / "peers/torch_vision.py"
RUNTIME, PREDICT = machine.PEERS / "onnxruntime/bin/python", turns.HERE / "peers/onnxruntime_predict.py"
PROGRAM, CONVERT = turns.BUILD / "vision", machine.ROOT / "build/release/examples/convert"
MODES = {
    f"{layout}, {'compiled' if compiled else 'eager'}": {"LAYOUT": layout, **({"COMPILE": "1"} if compiled else {})}
    for layout in ("channels_last", "contiguous")
    for compiled in (False, True)
}
TITLES = {
    "resnet50": "ResNet-50",
    "resnet50-frozen": "ResNet-50, frozen body",
    "mobilenet_v2": "MobileNetV2",
    "unet": "U-Net with transposed convolutions",
}
# Batch and the least ratio that is asked.
STEPS = {"resnet50": (8, 2.0), "resnet50-frozen": (8, 2.3), "mobilenet_v2": (8, 1.8), "unet": (4, 1.7)}
# Those whose step is also compared with its operations as single oneDNN primitives, with direct convolutions.
PRIMITIVES = ("resnet50", "resnet50-frozen")
PREDICTIONS = {"resnet50": 1.05, "mobilenet_v2": 1.1}


def step(options, quiet, network):
    words = (network, "step", STEPS[network][0], options.threads)
    commands = {"cupola": [PROGRAM, *words], "torch": turns.Modes([TORCH, SCRIPT, *words], MODES)}
    if network in PRIMITIVES:
        commands["primitives"] = [turns.BUILD / "onednn_primitives", options.threads, STEPS[network][0], network]
    programs, rounds = turns.take(options, commands, quiet)
    alone = [1e-3 * r["sum_median"] for r in rounds.pop("primitives", [])]
    seconds = {key: turns.step_seconds(r) for key, r in rounds.items()}
    return {
        "primitives": turns.ratios(alone, seconds["cupola"]) if alone else None,
        "programs": programs,
        "milliseconds": {key: turns.spread([1e3 * s for s in values]) for key, values in seconds.items()},
        "ratio": turns.ratios(seconds["torch"], seconds["cupola"]) if "torch" in seconds else None,
    }


def prediction(options, quiet, network):
    with tempfile.TemporaryDirectory() as name:
        weights, model, samples, own, peer = (pathlib.Path(name) / file for file in ("w.safetensors", "m.onnx", "samples", "own", "peer"))
        subprocess.run([TORCH, SCRIPT, network, "make", "1", weights, samples], check=True)
        subprocess.run([CONVERT, "--model", network, "--in", weights, "--out", model], check=True)
        programs, rounds = turns.take(
            options,
            {
                "cupola": [PROGRAM, network, "predict", 1, options.threads, weights, samples, own],
                "onnxruntime": [RUNTIME, PREDICT, model, 1, options.threads, samples, peer],
            },
            quiet,
        )
        if "missing" in programs:
            raise SystemExit(f"{network}: {'; '.join(programs['missing'].values())}")
        apart = inference.difference(own, peer)
    if apart > inference.MOST_DIFFERENCE:
        raise SystemExit(f"{network}: the outputs differ by {apart:.1e}, so the programs do not compute the same")
    seconds = {key: turns.step_seconds(r) for key, r in rounds.items()}
    return {
        "programs": programs,
        "difference": apart,
        "milliseconds": {key: turns.spread([1e3 * s for s in values]) for key, values in seconds.items()},
        "ratio": turns.ratios(seconds["onnxruntime"], seconds["cupola"]),
    }


def main():
    parser = argparse.ArgumentParser(prog="run vision")
    turns.add_options(parser)
    parser.add_argument("--only", default=",".join([*STEPS, "predict"]), help="which networks' steps, and predict")
    parser.add_argument("--no-save", action="store_true", help="print the results, but do not write docs/measurements")
    options = parser.parse_args()
    wanted = options.only.split(",")
    unknown = [name for name in wanted if name not in (*STEPS, "predict")]
    if unknown:
        parser.error(f"--only {unknown[0]}: not one of {', '.join([*STEPS, 'predict'])}")
    options.no_save = options.no_save or set(wanted) != {*STEPS, "predict"}
    computer, quiet, results = machine.describe(), turns.Quiet(), {}
    asked, steps, predictions = [], [], []
    for network in (name for name in STEPS if name in wanted):
        print(f"-- {network}", flush=True)
        results[network] = found = step(options, quiet, network)
        asked.append(machine.bar(f"{TITLES[network]}: a step over PyTorch's fastest", found["ratio"], least=STEPS[network][1]))
        if found["primitives"]:
            asked.append(machine.bar(f"{TITLES[network]}: its operations as oneDNN primitives alone, over the step", found["primitives"], least=0.85))
        for key, program in found["programs"].items():
            if key in found["milliseconds"]:
                steps.append(
                    [
                        f"{TITLES[network]}, batch {STEPS[network][0]}",
                        f"{program['name']} {program['version']}",
                        program["how"],
                        turns.text_of(found["milliseconds"][key], 1),
                        f"{program['peak_megabytes']:.0f}",
                    ]
                )
    for network in PREDICTIONS if "predict" in wanted else ():
        print(f"-- {network}, prediction", flush=True)
        results[f"{network}-predict"] = found = prediction(options, quiet, network)
        asked.append(machine.bar(f"{TITLES[network]}: a prediction over ONNX Runtime", found["ratio"], least=PREDICTIONS[network]))
        times = [turns.text_of(found["milliseconds"][key], 2) for key in ("cupola", "onnxruntime")]
        predictions.append([TITLES[network], *times, f"{found['difference']:.1e}"])
    text = [
        "# Networks for photographs",
        "",
        f"Written by `tests/benchmarks/run vision`: images of 224 x 224 (the U-Net's of 128 x 128), random weights and samples, float, "
        f"{options.threads} thread{'s' * (options.threads != 1)}; medians (least to most) of {options.rounds} rounds by turns. A step is with SGD "
        "and momentum; PyTorch's is that of its fastest mode of NCHW and channels-last, eager and compiled. A prediction is of one image; ONNX "
        "Runtime has the file that `convert` writes of the same weights.",
        "",
        *machine.lines(computer),
        "",
        *([*machine.table(["network", "program", "how", "ms/step", "peak MB"], steps), ""] if steps else []),
        *([*machine.table(["prediction", "Cupola, ms", "ONNX Runtime, ms", "difference"], predictions), ""] if predictions else []),
        *machine.table(["what", "asked", "measured", "met"], asked),
        "",
    ]
    figures = {"machine": computer, "options": vars(options), "quiet": quiet.report(), "figures": results}
    machine.publish(options, "vision", "\n".join(text), figures)


if __name__ == "__main__":
    sys.exit(main())
