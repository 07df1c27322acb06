# SPDX-License-Identifier: Apache-2.0
"""Compares Cupola on the CPU with its peers and with the limits of the machine. Measures the named parts (without names, all but the curve)
and writes docs/measurements/cpu.md and cpu.json: the limits, the measured values, and the details. Parts that are not measured now are
kept if they were measured on the same processor.

    run cpu [PART...] [--rounds N] [--turn SECONDS] [--quick] [--only NETWORKS] [--programs NAMES] [--out FOLDER] [--no-save]
"""

import argparse
import json
import pathlib
import sys
import time

import inference
import machine
import small_parts
import steps
import turns

PARTS = {
    "steps": steps,
    "profile": small_parts.Profile,
    "curve": small_parts.Curve,
    "winograd": small_parts.Winograd,
    "replicas": small_parts.Replicas,
    "averaging": small_parts.Averaging,
    "augmentation": small_parts.Augmentation,
    "training": small_parts.WholeRun,
    "inference": inference,
    "start": small_parts.Start,
    "compile": small_parts.Compile,
}


def page(sections):
    computers = [section["machine"] for section in sections.values()]
    last = max(computers, key=lambda c: c["date"])
    lines = [
        "# On the CPU: what is asked for, and what was measured",
        "",
        "Written by `tests/benchmarks/run`. Programs that are compared are started once, warmed up, and take turns while the others wait; "
        "ratios are of medians within a round. Medians over the rounds, with the least and the most.",
        "",
        *machine.lines(last),
    ]
    for name, section in sections.items():
        q = section["quiet"]
        its_commit = section["machine"]["commit"]
        commit = "" if its_commit == last["commit"] else f" Measured at commit {its_commit}."
        if name == "steps":
            for other in sorted({of_network["commit"] for of_network in section["result"].values()} - {its_commit}):
                networks = [key for key, of_network in section["result"].items() if of_network["commit"] == other]
                commit += f" Not so {', '.join(networks)}: measured at commit {other}."
        lines.append(
            f"- {name}: {section['rounds']} rounds; others used at most {q['others_busy']:.1%} of the machine, its host took {q['stolen']:.1%}; "
            f"{q['turns_repeated']} turns were repeated; it took {section['seconds']:.0f} s.{commit}"
        )
    rows = [row for name, part in PARTS.items() for row in part.bars(sections[name]["result"] if name in sections else {})]
    lines += ["", *machine.table(["", "asked for", "measured", "met"], rows), ""]
    for name, part in PARTS.items():
        if name in sections:
            lines += part.text(sections[name]["result"])
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], metavar="PART", help=", ".join(PARTS))
    turns.add_options(parser)
    steps.add_options(parser)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one round of short turns, without repetitions and without output files")
    parser.add_argument("--out", type=pathlib.Path, default=machine.MEASUREMENTS, help="the folder for the pages")
    parser.add_argument("--no-save", action="store_true", help="print the results, but write no file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.turn, options.wait, options.patience = 1, 0.1, 0.5, 0
        options.no_save = options.out == machine.MEASUREMENTS
    machine.MEASUREMENTS = options.out
    computer = machine.describe()
    if options.threads > computer["cores"]:
        raise SystemExit(f"{options.threads} threads were requested, but this machine has {computer['cores']} cores")
    file = options.out / "cpu.json"
    kept = json.loads(file.read_text())["sections"] if file.exists() else {}
    sections = {name: s for name, s in kept.items() if name in PARTS and s["machine"]["processor"] == computer["processor"]}
    for name in options.parts or [name for name in PARTS if name != "curve"]:
        print(f"-- {name}", flush=True)
        quiet, begun = turns.Quiet(), time.perf_counter()
        result = PARTS[name].measure(options, quiet)
        if name == "steps":  # with a choice of networks, only those are replaced
            for network in result.values():
                network["commit"] = computer["commit"]
            result = {**(sections[name]["result"] if name in sections else {}), **result}
        if name == "compile" and name in sections:  # with a choice of parts too
            for key in ("figures", "ratios"):
                result[key] = {**sections[name]["result"][key], **result[key]}
        sections[name] = {
            "machine": computer,
            "rounds": options.rounds,
            "seconds": time.perf_counter() - begun,
            "quiet": quiet.report(),
            "result": result,
        }
        # Written after each part, so that its results are kept if a later part fails.
        sections = {key: sections[key] for key in PARTS if key in sections}
        if not options.no_save:
            options.out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"sections": sections}, indent=1) + "\n")
            file.with_suffix(".md").write_text(page(sections))
    print("\n" + page(sections))
    return 0


if __name__ == "__main__":
    sys.exit(main())
