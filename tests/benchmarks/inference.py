# SPDX-License-Identifier: Apache-2.0
"""Inference: compares Cupola's Predictor with ONNX Runtime, with the same weights and samples. Outputs are compared before the timing."""

import array
import math
import pathlib
import subprocess
import tempfile

import machine
import turns

TITLES = {"lrn": "tutorial network", "resnet44": "ResNet-44"}
BATCHES = (1, 128)
MOST_DIFFERENCE = 1e-4


def difference(path, reference):
    """norm(a - b) / norm(b) of two files of floats."""
    a, b = (array.array("f", pathlib.Path(p).read_bytes()) for p in (path, reference))
    if len(a) != len(b) or not all(map(math.isfinite, a)):
        return math.inf
    return math.dist(a, b) / math.hypot(*b)


def measure(options, quiet):
    results = {}
    python, script = machine.PEERS / "onnxruntime/bin/python", turns.HERE / "peers/onnxruntime_predict.py"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for network in TITLES:
            files = [folder / f"{network}.safetensors", folder / f"{network}.samples"]
            subprocess.run([python, script, "make", network, str(max(BATCHES)), *files], check=True)
            for batch in BATCHES:
                print(f"-- {network}, batch {batch}", flush=True)
                outputs = {key: folder / f"{key}.outputs" for key in ("cupola", "direct", "onnxruntime")}
                words = (network, batch, options.threads, *files)
                described, rounds = turns.take(
                    options,
                    {
                        "cupola": [turns.BUILD / "prediction", *words, outputs["cupola"], "winograd"],
                        "direct": [turns.BUILD / "prediction", *words, outputs["direct"]],
                        "onnxruntime": [python, script, *words, outputs["onnxruntime"]],
                    },
                    quiet,
                )
                apart = max(difference(outputs[key], outputs["onnxruntime"]) for key in ("cupola", "direct"))
                if apart > MOST_DIFFERENCE:
                    raise SystemExit(f"{network}, batch {batch}: the outputs differ by {apart:.1e}, so the programs do not compute the same")
                seconds = {key: turns.step_seconds(r) for key, r in rounds.items()}
                results[f"{network}-{batch}"] = {
                    "programs": described,
                    "difference": apart,
                    "milliseconds": {key: turns.spread([1e3 * s for s in values]) for key, values in seconds.items()},
                    "ratio": turns.ratios(seconds["onnxruntime"], seconds["cupola"]),
                    "ratio_direct": turns.ratios(seconds["onnxruntime"], seconds["direct"]),
                }
    return results


def bars(results):
    ways = (("ratio", "over ONNX Runtime"), ("ratio_direct", "the same with oneDNN's direct convolutions"))
    return [
        machine.bar(f"inference, {title}, batch {batch}: {what}", results.get(f"{network}-{batch}", {}).get(key), least=1.0)
        for network, title in TITLES.items()
        for batch in BATCHES
        for key, what in ways
    ]


def text(results):
    versions = {d["name"]: d["version"] for r in results.values() for d in r["programs"].values()}
    rows = []
    for network, title in TITLES.items():
        for batch in BATCHES:
            r = results[f"{network}-{batch}"]
            times = [turns.text_of(r["milliseconds"][key], 3) for key in ("cupola", "direct", "onnxruntime")]
            rows.append([title, batch, *times, turns.text_of(r["ratio"], 2), f"{r['difference']:.1e}"])
    return [
        "## Inference",
        "",
        f"`Predictor` beside ONNX Runtime {versions.get('ONNX Runtime', '')} (all optimisations, its own layout, the model built from the "
        "same file of weights), random weights and samples. The difference is that of the outputs, norm over norm.",
        "",
        *machine.table(["network", "batch", "Cupola, Winograd, ms", "Cupola, direct, ms", "ONNX Runtime, ms", "Winograd over it", "difference"], rows),
        "",
    ]
