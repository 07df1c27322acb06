# SPDX-License-Identifier: Apache-2.0
"""Compares the training step of this checkout with that of an earlier commit, in time and in memory.

    run commits [COMMIT] [--rounds 10] [--networks NAMES] [--bound 0.02]

COMMIT (default: the one before HEAD) is built twice, with the same compiler and flags as this checkout. Its two programs, which have the
same code, and that of this checkout take turns. The ratio of the first two is the A/A spread: the difference that this machine measures
between equal programs. A network has become slower if the median of its ratio exceeds 1 by more than the bound and by more than the A/A
spread. It needs more memory if its peak has grown by more than 1 % and by more than the difference of the A/A pair. In both cases the exit
status is 1."""

import argparse
import os
import shutil
import subprocess
import sys

import machine
import turns

# name: the arguments of training_step: network, precision, batch, and options
NETWORKS = {
    "lrn": ("lrn", "float", 128),
    "lrn-winograd": ("lrn", "float", 128, "winograd"),
    "plain": ("plain", "float", 128),
    "lrn-bf16": ("lrn", "bfloat16", 128),
    "plain-bf16": ("plain", "bfloat16", 128),
    "resnet44": ("resnet44", "float", 128),
    "resnet44-winograd": ("resnet44", "float", 128, "winograd"),
    "mlp": ("mlp", "float", 32),
}


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def build_commit(commit):
    """Builds training_step of a commit and returns the paths of two copies. The build of a commit is kept."""
    name = run("git", "-C", machine.ROOT, "rev-parse", "--short=12", f"{commit}^{{commit}}", capture_output=True, text=True).stdout.strip()
    folder = machine.PEERS / "commits" / name
    tree, build, copies = folder / "tree", folder / "build", [folder / "first", folder / "second"]
    if not copies[1].exists():
        shutil.rmtree(folder, ignore_errors=True)
        tree.mkdir(parents=True)
        archive = subprocess.Popen(["git", "-C", str(machine.ROOT), "archive", name], stdout=subprocess.PIPE)
        run("tar", "-x", "-C", tree, stdin=archive.stdout)
        if archive.wait() != 0:
            raise SystemExit(f"the files of the commit {name} could not be read")
        os.symlink(machine.PEERS.parent, tree / ".deps")
        print(f"-- building commit {name}", flush=True)
        with (folder / "log").open("w") as log:
            run("cmake", "-S", tree / "tests/benchmarks", "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", stdout=log, stderr=log)
            run("cmake", "--build", build, "--target", "training_step", stdout=log, stderr=log)
        for copy in copies:
            shutil.copy2(build / "training_step", copy)
    return name, copies


def compare(options, network, copies, quiet):
    """The ratios of the steps of a network in each round, and the peaks of memory. None if this processor cannot train it."""
    words = [str(word) for word in (*NETWORKS[network][:3], options.threads, *NETWORKS[network][3:])]
    programs = {"before": copies[0], "before again": copies[1], "now": turns.BUILD / "training_step"}
    described, rounds = turns.take(options, {key: [program, *words] for key, program in programs.items()}, quiet)
    if "missing" in described:
        if not rounds:
            return None
        raise SystemExit("; ".join(f"{key}: {why}" for key, why in described["missing"].items()))
    step = {key: turns.step_seconds(answers) for key, answers in rounds.items()}
    return {
        "same": turns.ratios(step["before again"], step["before"]),
        "changed": turns.ratios(step["now"], step["before"]),
        "megabytes": {key: described[key]["peak_megabytes"] for key in programs},
    }


def problems_of(result, bound):
    """Messages about what has become worse."""
    same, changed, peak = result["same"], result["changed"], result["megabytes"]
    noise = max(same["most"] - 1, 1 - same["least"])
    found = []
    if changed["median"] > 1 + max(bound, noise):
        found.append(f"a step takes {changed['median']:.3f} of the time before; the bound is {1 + max(bound, noise):.3f}")
    before = max(peak["before"], peak["before again"])
    if peak["now"] > before + abs(peak["before"] - peak["before again"]) + 0.01 * before:
        found.append(f"its peak of memory is {peak['now']:.1f} MB, not {before:.1f} MB")
    return found


def main():
    parser = argparse.ArgumentParser(prog="run commits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD~1")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="networks to measure: " + ", ".join(NETWORKS))
    parser.add_argument("--bound", type=float, default=0.02, help="the fraction by which a step may be slower")
    turns.add_options(parser)
    parser.set_defaults(rounds=10)
    options = parser.parse_args()
    unknown = [name for name in options.networks.split(",") if name not in NETWORKS]
    if unknown:
        raise SystemExit(f"--networks must name some of {', '.join(NETWORKS)}, not {', '.join(unknown)}")
    name, copies = build_commit(options.commit)
    quiet, rows, failures = turns.Quiet(), [], []
    for network in options.networks.split(","):
        print(f"-- {network}", flush=True)
        result = compare(options, network, copies, quiet)
        if result is None:
            rows.append([network, "cannot be trained here", "", "", "", ""])
            continue
        problems = problems_of(result, options.bound)
        failures += [f"{network}: {problem}" for problem in problems]
        peaks = result["megabytes"]
        rows.append([network, turns.text_of(result["same"], 3), turns.text_of(result["changed"], 3),
                     f"{peaks['before']:.1f}", f"{peaks['now']:.1f}", "no" if problems else "yes"])
    print(f"\nThis checkout beside commit {name}, {options.rounds} rounds:\n")
    print("\n".join(machine.table(["network", "before over itself", "now over before", "MB before", "MB now", "as good"], rows)))
    print("\n".join(["", *failures]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
