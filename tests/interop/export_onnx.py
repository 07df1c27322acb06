# SPDX-License-Identifier: Apache-2.0
"""Cupola's ONNX files in ONNX Runtime: export_onnx.py ONNX_TOOL layers|zoo|checker, with onnx, onnxruntime and numpy installed.

For each network of onnx_tool.cpp, with images channels first and last, or of zoo.hpp, channels first, and one of them last: onnx.checker
accepts the file, with the shapes that it infers for every value, and ONNX Runtime's outputs of a batch of 1 and of 7 are within 1e-4 of the
largest output from those of Cupola's Predictor.

With `checker`, onnx alone reads and checks the file of each network: an older one than that beside ONNX Runtime, Debian 12's for example.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnx

LAYERS = ("tutorial", "windows", "groups", "blocks", "features", "flattened", "gates", "norms", "sequences", "four_extents", "inputs")
ZOO = ("resnet18", "resnet34", "resnet50", "vgg16", "mobilenet_v2", "efficientnet_lite0", "convnext_tiny", "transposed_unet",
       "efficientnet_b0", "pnet", "rnet", "onet")  # fmt: skip
BOUND = 1e-4
TYPES = {"tensor(float)": numpy.float32, "tensor(int32)": numpy.int32, "tensor(uint8)": numpy.uint8}


def read(path, kind, shape, batch, layout, ids):
    """A batch of samples, which are channels last in the tool's files, as it is in the model."""
    values = numpy.fromfile(path, kind)
    if len(shape) == 4 and layout == "nchw" and not ids:
        _, channels, height, width = shape
        return values.reshape(batch, height, width, channels).transpose(0, 3, 1, 2).copy()
    return values.reshape(batch, *shape[1:])


def reordered(values, name):
    """Features that were flattened from an image, from (c, h, w) to (h, w, c)."""
    height, width, channels = map(int, name.split("_")[1:])
    return values.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).reshape(len(values), -1)


def written(tool, network, layout, batch, folder):
    subprocess.run([tool, network, layout, str(batch), str(folder)], check=True)
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8 and [o.version for o in model.opset_import] == [17]
    # Networks with a preprocessing have its numbers too.
    metadata = {p.key: p.value for p in model.metadata_props if not p.key.startswith("preprocessing.")}
    assert metadata == {"made by": "onnx_tool"}
    return model


def check(tool, network, layout, batch, folder):
    import onnxruntime

    model = written(tool, network, layout, batch, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    feeds = {
        i.name: read(folder / f"{i.name}.in", TYPES[i.type], i.shape, batch, layout, i.type == "tensor(int32)") for i in session.get_inputs()
    }
    outputs = session.get_outputs()
    assert all(end.shape[0] == "N" for end in (*session.get_inputs(), *outputs))
    worst = 0.0
    for output, values in zip(outputs, session.run(None, feeds)):
        assert list(values.shape) == [batch, *output.shape[1:]], f"{output.name} is {values.shape}, not {output.shape}"
        ours = read(folder / f"{output.name}.out", numpy.float32, output.shape, batch, layout, False)
        if output.name.startswith("flat_") and layout == "nchw":
            values = reordered(values, output.name)
        apart = float(numpy.abs(values - ours).max() / numpy.abs(ours).max())
        assert ours.std() > 0 and apart < BOUND, f"{network}, {layout}, batch of {batch}: {output.name} differs by {apart:.2e} of its largest"
        worst = max(worst, apart)
    operators = sorted({node.op_type for node in model.graph.node})
    print(f"{network}, {layout}, batch of {batch}: {len(outputs)} outputs within {worst:.1e}; {' '.join(operators)}", flush=True)


def main():
    tool, what = sys.argv[1:]
    if what == "checker":
        for network in LAYERS + ZOO:
            with tempfile.TemporaryDirectory(prefix="cupola_onnx_") as folder:
                model = written(tool, network, "nchw", 1, Path(folder))
                print(f"{network}: onnx {onnx.__version__} accepts {len(model.graph.node)} operators", flush=True)
    for network in {"layers": LAYERS, "zoo": ZOO}.get(what, ()):
        for layout in ("nchw", "nhwc") if what == "layers" or network == "mobilenet_v2" else ("nchw",):
            for batch in (1, 7):
                with tempfile.TemporaryDirectory(prefix="cupola_onnx_") as folder:
                    check(tool, network, layout, batch, Path(folder))
    print("all checks passed")


if __name__ == "__main__":
    main()
