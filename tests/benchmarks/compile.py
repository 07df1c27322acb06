# SPDX-License-Identifier: Apache-2.0
"""Compile time and memory: the tutorial's program in one file compared with the same network in dlib, and networks of many layers; with
Cupola's headers alone, and compiled separately from <cupola/src.hpp>. If MPI is installed, also the program with its policy MpiConcatMean,
and if nvcc is, the networks of cifar10_train for Cuda.

Each file is compiled at -O2 to an object, by turns, in several rounds. Seconds are elapsed time and CPU time, memory is the peak of
the largest process (cc1plus, clang or cicc). Usage: run compile [--rounds N] [--no-save] [--only cifar10,zoo,layers,cuda]
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time

import machine

HERE = machine.ROOT / "tests" / "benchmarks"
PARTS = ("cifar10", "zoo", "layers", "cuda")
LAYERS = (20, 100, 400)
# The networks for photographs: the header in models/ and the type.
ZOO = {
    "ResNet-18": ("torchvision_resnet", "ResNet18<10>"),
    "ResNet-34": ("torchvision_resnet", "ResNet34<10>"),
    "ResNet-50": ("torchvision_resnet", "ResNet50<10>"),
    "VGG-16": ("torchvision_vgg", "VGG16<10>"),
    "MobileNetV2": ("mobilenet_v2", "MobileNetV2<10>"),
    "EfficientNet-Lite0": ("efficientnet_lite0", "EfficientNetLite0<10>"),
    "ConvNeXt-Tiny": ("convnext", "ConvNeXtTiny<10>"),
}
ZOO_LIMIT = 1.25
EXAMPLE = machine.ROOT / "examples" / "cifar10_train"
# Fewer rounds: nvcc takes minutes, and its times vary less.
CUDA_ROUNDS = ZOO_ROUNDS = 3
# The compiler, and whether the program is compiled separately.
WAYS = {"g++ with cupola::compiled": ("g++", True), "g++": ("g++", False), "clang++-16": ("clang++-16", False)}


def compile_once(command, output):
    """(elapsed seconds, CPU seconds, peak MB)"""
    start = time.perf_counter()
    process = subprocess.Popen([*command, "-o", output], stderr=subprocess.PIPE, text=True)
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        words = "\n".join(line[:400] for line in message.splitlines()[:12])
        raise SystemExit(f"{shlex.join(command)} failed:\n{words}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def cupola_command(compiler, source, separately=False, more=()):
    """The project's command for cupola_cifar10.cpp, at -O2, for another source and compiler, with `more` flags. `separately`: for a
    program that links to cupola::compiled, or has a file of its own with <cupola/src.hpp>: both only define a macro."""
    entries = json.loads((machine.PEERS / "build" / "compile_commands.json").read_text())
    entry = next(e for e in entries if e["file"].endswith("compile/cupola_cifar10.cpp"))
    words, kept = shlex.split(entry["command"]), []
    skip = False
    for word in words[1:]:
        if skip or word in ("-o", "-c"):
            skip = not skip
        elif not word.startswith("-O") and word != "-DNDEBUG":
            kept.append(word)
    return [compiler, "-O2", *kept, *(["-DCUPOLA_SEPARATE_COMPILATION"] if separately else []), *more, "-c", str(source)]


def mpi_program(folder):
    """cupola_cifar10.cpp with MpiConcatMean, and the flags of MPI; None where there is none."""
    mpicc = shutil.which("mpicc")
    if mpicc is None:
        return None
    text = (HERE / "compile" / "cupola_cifar10.cpp").read_text()
    text = text.replace("#include <cupola/host.hpp>", "#include <cupola/host.hpp>\n#include <cupola/mpi.hpp>")
    text = text.replace("Sgd, ConcatMean, Host>", "Sgd, MpiConcatMean, Host>")
    assert text.count("mpi.hpp") == text.count("MpiConcatMean") == 1
    source = folder / "mpi.cpp"
    source.write_text(text)
    folders = machine.output_of(mpicc, "--showme:incdirs").split()
    return source, [word for each in folders for word in ("-isystem", each)]


def find_nvcc():
    """The path of nvcc, or None."""
    return shutil.which(os.environ.get("CUDACXX", "nvcc")) or shutil.which("/usr/local/cuda/bin/nvcc")


def cuda_command(nvcc, source):
    """The command of nvcc for one architecture, with the include folders of the project's command; with NCCL if its header is found."""
    words = cupola_command("g++", source)
    folders = [word for i, word in enumerate(words) if word.startswith("-I") or "-isystem" in (word, words[i - 1])]
    toolkit = pathlib.Path(nvcc).resolve().parent.parent / "include"
    nccl = any((folder / "nccl.h").exists() for folder in (toolkit, pathlib.Path("/usr/include")))
    defined = ["-DCUPOLA_EXAMPLE_CUDA", *(["-DCUPOLA_EXAMPLE_NCCL"] if nccl else [])]
    host = "-Xcompiler=-march=native,-fopenmp"
    return [nvcc, "-std=c++20", "-O2", "-arch=sm_90", host, *defined, *folders, "-c", str(source)]


def cuda_networks(folder):
    """The files that examples/CMakeLists.txt writes: one per network and precision."""
    sources = []
    for model in ("tutorial", "resnet"):
        for precision in ("float32", "bfloat16"):
            source = pathlib.Path(folder) / f"{model}_{precision}_cuda.cu"
            chosen = f"cifar10::Model::{model}, cifar10::Precision::{precision}, cifar10::Place::cuda"
            source.write_text(
                f'#include "{EXAMPLE}/run.hpp"\n\ntemplate int cifar10::run_network<{chosen}>(const cifar10::TrainOptions&, '
                "const cupola::ImageData&, const cupola::Schedule&, const std::string&);\n"
            )
            sources.append(source)
    return sources


def cuda_rows(options, folder, figures):
    """Adds the figures of nvcc to `figures`; returns the lines of the page, and how busy other processes were."""
    text = ["", "## cifar10_train for Cuda, by nvcc", ""]
    nvcc = find_nvcc()
    if nvcc is None:
        return [*text, "Skipped: there is no nvcc."], 0.0
    release = machine.output_of(nvcc, "--version").splitlines()[-2]
    figures["cuda"], busy = take_turns(
        {source.name: cuda_command(nvcc, source) for source in cuda_networks(folder)}, min(options.rounds, CUDA_ROUNDS), folder
    )
    text += [
        f"{release}; -O2 for one architecture, sm_90; {min(options.rounds, CUDA_ROUNDS)} rounds. Each file holds one network in one "
        "precision with both averagings, all optimisers and every kernel that they launch.",
        "",
    ]
    rows = [
        [f"`{name}`", f"{v['seconds']:.1f} ({v['processor_seconds']:.1f})", f"{v['megabytes']:.0f}"]
        for name, v in figures["cuda"].items()
    ]
    total = [sum(v[key] for v in figures["cuda"].values()) for key in ("seconds", "processor_seconds")]
    rows.append(["together, one after another", f"{total[0]:.1f} ({total[1]:.1f})", ""])
    return [*text, *machine.table(["file", "seconds", "MB"], rows)], busy


def dlib_command(compiler):
    flags = machine.output_of("pkg-config", "--cflags", "dlib-1").split()
    # dlib is compiled in the compiler's default standard, C++17. In C++20 it takes 50 MB more, in C++14 25 MB less.
    return [compiler, "-O2", *flags, "-c", str(HERE / "compile" / "dlib_cifar10.cpp")]


def with_network(network, decay="WeightDecayAll<0.004>", include=""):
    """cupola_cifar10.cpp with another definition of the network, and the regulariser of its parameters."""
    text = (HERE / "compile" / "cupola_cifar10.cpp").read_text()
    begin, end = text.index("struct Cifar10Net"), text.index("using Cifar10Loss")
    text = text[:begin] + network + text[end:]
    for before, after in (('WeightDecay<0.004, "local3", "local4">', decay), ("#include <cupola/host.hpp>\n", f"#include <cupola/host.hpp>\n{include}")):
        assert text.count(before) == 1
        text = text.replace(before, after)
    return text


def zoo_rows(options, folder, figures):
    """Adds the figures of the networks for photographs to `figures`; returns the lines of the page, and how busy other processes were."""
    ways = {name: separately for name, (compiler, separately) in WAYS.items() if compiler == "g++"}
    sources = {"tutorial": HERE / "compile" / "cupola_cifar10.cpp"}
    for name, (header, network) in ZOO.items():
        sources[name] = folder / f"{header}_{len(sources)}.cpp"
        sources[name].write_text(with_network(f"struct Cifar10Net : {network} {{}};\n", include=f"#include <cupola/models/{header}.hpp>\n"))
    commands = {f"{name}, {way}": cupola_command("g++", source, ways[way]) for name, source in sources.items() for way in ways}
    figures["zoo"], busy = take_turns(commands, min(options.rounds, ZOO_ROUNDS), folder)
    rows = []
    for name in sources:
        for way in ways:
            found, tutorial = figures["zoo"][f"{name}, {way}"], figures["zoo"][f"tutorial, {way}"]
            ratio = found["processor_seconds"] / tutorial["processor_seconds"]
            met = "" if name == "tutorial" else "yes" if ratio <= ZOO_LIMIT else "no"
            rows.append([name, way, f"{found['seconds']:.2f} ({found['processor_seconds']:.2f})", f"{found['megabytes']:.0f}", f"{ratio:.2f}", met])
    text = [
        "",
        "## Networks for photographs",
        "",
        f"The same program with another network, {min(options.rounds, ZOO_ROUNDS)} rounds; its processor seconds over those of the tutorial's network.",
        "",
    ]
    return [*text, *machine.table(["network", "compiler", "seconds", "MB", "over the tutorial's", f"at most {ZOO_LIMIT}"], rows)], busy


def deep_network(layers):
    """A program like cupola_cifar10.cpp with a network of this number of layers, not counting the Input. Layers with parameters have
    names; widths vary, so that the layers have different types."""
    items, number = [], 0
    while len(items) < layers - 2:
        number += 1
        items.append(f'Named<"conv{number}", Conv2d<{16 + 8 * (number % 3)}, 3>>')
        items.append("ReLU")
        if number % 10 == 0:
            items.append("LocalResponseNorm<2>")
    items = items[: layers - 2] + ["Flatten", 'Named<"logits", Linear<10>>']
    assert len(items) == layers
    net = "struct Cifar10Net : Sequential<Input<8, 8, 3>,\n    " + ",\n    ".join(items) + "> {};\n"
    return with_network(net, 'WeightDecay<0.004, "conv1", "conv2">')


def take_turns(commands, rounds, folder):
    samples = {name: [] for name in commands}
    busiest = 0.0
    names = list(commands)
    for number in range(rounds):
        machine.wait_until_quiet(0.1, 30)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            busy, _ = machine.busy_seconds()
            sample = compile_once(commands[name], str(folder / "out.o"))
            others = max(0.0, machine.busy_seconds()[0] - busy - sample[1]) / sample[0] / os.cpu_count()
            busiest = max(busiest, others)
            samples[name].append(sample)
            print(f"round {number + 1}: {name}: {sample[0]:.2f} s, {sample[2]:.0f} MB, others used {others:.0%} of the machine", flush=True)
    return {name: machine.middle(s) for name, s in samples.items()}, busiest


def options_of(words=None):
    parser = argparse.ArgumentParser(prog="run compile")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(PARTS), help="of these parts; then no page is written")
    parser.add_argument("--no-save", action="store_true", help="print the results, but do not write docs/measurements")
    options = parser.parse_args(words)
    options.only = options.only.split(",")
    if not set(options.only) <= set(PARTS):
        raise SystemExit(f"--only must name some of {', '.join(PARTS)}")
    options.no_save = options.no_save or set(options.only) != set(PARTS)
    return options


def measure(options):
    """Measures, prints and writes the page; returns the contents of its JSON file."""
    computer = machine.describe()
    text = [
        "# Cost of compiling",
        "",
        "`tests/benchmarks/run compile`: -O2, one file to one object, compiled by turns, "
        f"{options.rounds} rounds; medians. Seconds by the clock, in brackets of the processor; megabytes are the compiler's peak.",
        "",
        *machine.lines(computer),
    ]
    figures, ratios, busiest = {}, {}, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "cifar10" in options.only:
            source = HERE / "compile" / "cupola_cifar10.cpp"
            headers = folder / "headers.cpp"
            headers.write_text("#include <cupola/cupola.hpp>\n#include <cupola/host.hpp>\n")
            mpi = mpi_program(folder)
            figures["cifar10"], busy = take_turns(
                {
                    "Cupola with cupola::compiled, g++": cupola_command("g++", source, separately=True),
                    "Cupola, headers alone, g++": cupola_command("g++", source),
                    "dlib, g++": dlib_command("g++"),
                    "Cupola with cupola::compiled, clang++-16": cupola_command("clang++-16", source, separately=True),
                    "Cupola, headers alone, clang++-16": cupola_command("clang++-16", source),
                    "Cupola's two headers and nothing else, g++": cupola_command("g++", headers),
                    **({"Cupola for MPI, with cupola::compiled, g++": cupola_command("g++", mpi[0], True, mpi[1])} if mpi else {}),
                },
                options.rounds,
                folder,
            )
            busiest = max(busiest, busy)
            theirs = figures["cifar10"]["dlib, g++"]
            ratios = {
                way: {
                    key: figures["cifar10"][f"Cupola{words}, g++"][key] / theirs[key]
                    for key in ("seconds", "processor_seconds", "megabytes")
                }
                for way, words in (("compiled", " with cupola::compiled"), ("headers", ", headers alone"), ("mpi", " for MPI, with cupola::compiled"))
                if f"Cupola{words}, g++" in figures["cifar10"]
            }
            text += [
                "",
                "## The tutorial's network, loss, optimiser, trainer and loop in one file",
                "",
                f"dlib {machine.output_of('pkg-config', '--modversion', 'dlib-1')} has no local response normalisation: its network has two layers less. "
                "What dlib computes with is compiled in its library, which its programs link to; Cupola's is in cupola::compiled, for those who "
                "want it, or in its headers.",
                "",
            ]
            text += machine.table(
                ["file", "seconds", "MB"],
                [[k, f"{v['seconds']:.2f} ({v['processor_seconds']:.2f})", f"{v['megabytes']:.0f}"] for k, v in figures["cifar10"].items()],
            )
            text += [
                "",
                *machine.table(
                    ["Cupola over dlib", "measured", "asked for"],
                    [
                        row
                        for way, words, limits in (
                            ("compiled", "with cupola::compiled", ("at most 0.25", "at most 0.5")),
                            ("mpi", "for MPI, with cupola::compiled", ("at most 0.3", "")),
                            ("headers", "headers alone", ("at most 0.78", "")),
                        )
                        if way in ratios
                        for r in (ratios[way],)
                        for row in (
                            [f"seconds, {words}", f"{r['seconds']:.2f} ({r['processor_seconds']:.2f})", limits[0]],
                            [f"memory, {words}", f"{r['megabytes']:.2f}", limits[1]],
                        )
                    ],
                ),
            ]
        if "zoo" in options.only:
            lines, busy = zoo_rows(options, folder, figures)
            busiest = max(busiest, busy)
            text += lines
        if "layers" in options.only:
            commands = {}
            for layers in LAYERS:
                source = folder / f"layers{layers}.cpp"
                source.write_text(deep_network(layers))
                for way, (compiler, separately) in WAYS.items():
                    commands[f"{layers} layers, {way}"] = cupola_command(compiler, source, separately)
            figures["layers"], busy = take_turns(commands, options.rounds, folder)
            busiest = max(busiest, busy)
            rows = []
            for way in WAYS:
                few, some, many = (figures["layers"][f"{n} layers, {way}"] for n in LAYERS)
                for n, v in zip(LAYERS, (few, some, many)):
                    rows.append([way, n, f"{v['seconds']:.2f} ({v['processor_seconds']:.2f})", f"{v['megabytes']:.0f}"])
                first = (some["processor_seconds"] - few["processor_seconds"]) / (LAYERS[1] - LAYERS[0])
                last = (many["processor_seconds"] - some["processor_seconds"]) / (LAYERS[2] - LAYERS[1])
                ratios[f"growth, {way}"] = {
                    "ms_per_layer_20_to_100": 1e3 * first,
                    "ms_per_layer_100_to_400": 1e3 * last,
                    "mb_per_layer_20_to_100": (some["megabytes"] - few["megabytes"]) / (LAYERS[1] - LAYERS[0]),
                    "mb_per_layer_100_to_400": (many["megabytes"] - some["megabytes"]) / (LAYERS[2] - LAYERS[1]),
                }
            text += [
                "",
                "## Networks of many layers",
                "",
                "Convolutions of three widths with ReLU, and a normalisation after each tenth, in "
                "the same program. Linear growth is an equal cost of each further layer.",
                "",
            ]
            text += machine.table(["compiler", "layers", "seconds", "MB"], rows) + [""]
            text += machine.table(
                ["compiler", "each further layer", "20 to 100", "100 to 400"],
                [
                    row
                    for way in WAYS
                    for g in (ratios[f"growth, {way}"],)
                    for row in (
                        [way, "milliseconds of the processor", f"{g['ms_per_layer_20_to_100']:.1f}", f"{g['ms_per_layer_100_to_400']:.1f}"],
                        [way, "MB", f"{g['mb_per_layer_20_to_100']:.2f}", f"{g['mb_per_layer_100_to_400']:.2f}"],
                    )
                ],
            )
        if "cuda" in options.only:
            lines, busy = cuda_rows(options, folder, figures)
            busiest = max(busiest, busy)
            text += lines
    text.insert(6 + 1, f"- others used at most {busiest:.1%} of the machine meanwhile")
    page = "\n".join(text) + "\n"
    result = {"machine": computer, "rounds": options.rounds, "figures": figures, "ratios": ratios, "others_busy": busiest}
    machine.publish(options, "compile", page, result)
    return result


if __name__ == "__main__":
    measure(options_of())
