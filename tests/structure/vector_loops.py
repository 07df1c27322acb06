#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every loop of include/ that is marked `#pragma omp simd` becomes vector instructions.

    vector_loops.py SOURCE_FOLDER OUTPUT_FOLDER COMPILER FLAGS...

Compiles vector_loops.cpp and the part of cupola::compiled that it leaves out, and reads what the compiler says of
their loops: g++ by -fopt-info, clang by -Rpass. A loop fails if the compiler names it as one that it could not vectorise,
in any instantiation, or if it names it nowhere: a loop that is not compiled here is not tested."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VECTOR = re.compile(r"^(.*?):(\d+):\d+: (?:optimized: loop vectorized|remark: vectorized loop)")
SCALAR = re.compile(r"^(.*?):(\d+):\d+: (?:missed: couldn't vectorize loop|"
                    r"(?:warning|error): loop not vectorized: the optimizer was unable)")


def end_of_loop(lines, start):
    """The last line of the statement that begins with the `for` of line `start`; lines count from 0."""
    parentheses = braces = 0
    for number in range(start, len(lines)):
        for character in lines[number].split("//")[0]:
            parentheses += (character == "(") - (character == ")")
            if parentheses:
                continue
            braces += (character == "{") - (character == "}")
            if braces == 0 and character in ";}":
                return number
    raise SystemExit(f"line {start + 1} begins no loop that ends")


def marked_loops(include):
    """(file, line of the mark, last line) of each marked loop; lines count from 1."""
    for file in sorted(include.rglob("*")):
        if file.suffix not in (".hpp", ".ipp", ".cuh"):
            continue
        lines = file.read_text().split("\n")
        for number, line in enumerate(lines):
            if re.match(r"\s*#pragma omp\b.*\bsimd\b", line):
                yield file, number + 1, end_of_loop(lines, number + 1) + 1


def compile_unit(unit, output, compiler, flags):
    """The lines in which the compiler says what it made of its loops."""
    report = output / (unit.stem + ".loops")
    report.unlink(missing_ok=True)  # g++ appends to it
    gnu = "Free Software Foundation" in subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    if gnu:
        asked = [f"-fopt-info-vec-optimized-missed={report}", "-S"]
    else:
        asked = ["-Rpass=loop-vectorize", "-Wpass-failed", "-c", "-emit-llvm"]  # no code after that
    command = [compiler, *flags, *asked, str(unit), "-o", os.devnull]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{run.stderr}")
    return (report.read_text() if gnu else run.stderr).split("\n")


def main():
    source, output, compiler, flags = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    output.mkdir(parents=True, exist_ok=True)
    units = [source / "tests/structure/vector_loops.cpp", source / "cmake/compiled/bfloat16.cpp"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = pool.map(lambda unit: compile_unit(unit, output, compiler, [*flags, "-DCUPOLA_SEPARATE_COMPILATION"]), units)
        lines = [line for report in reports for line in report]

    said = {VECTOR: {}, SCALAR: {}}
    for line in lines:
        for pattern, places in said.items():
            if match := pattern.match(line):
                places.setdefault(os.path.realpath(match[1]), set()).add(int(match[2]))

    failures = total = 0
    for file, first, last in marked_loops(source / "include"):
        total += 1
        vector, scalar = ({at for at in said[pattern].get(os.path.realpath(file), ()) if first <= at <= last}
                          for pattern in (VECTOR, SCALAR))
        if vector:
            scalar.discard(first)  # g++: the mark's own line is where a sum's lanes are added up
        if vector and not scalar:
            continue
        failures += 1
        print(f"{file}:{first}: {'scalar code' if scalar else 'no unit of this test compiles this loop'}")
    print(f"{total} loops by {compiler} {' '.join(f for f in flags if f.startswith(('-O', '-m')))}: {failures} failures")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
