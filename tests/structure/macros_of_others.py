#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No header uses a name that Qt, X11 or C's complex.h define as a macro, and the compiler has no warning about any header.

    macros_of_others.py SOURCE_FOLDER COMPILER FLAGS...

macros_of_others.txt has the names. Compiles one unit that defines all of them, after the headers of others that ours include, and then
includes every header whose includes exist here. The rest (CUDA's kernels, what needs a library that is not installed, src.hpp and mpi_src.hpp, which are
not for programs of headers alone) is only searched, as all headers are, for the names outside comments and texts."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

source, compiler, flags = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
include = source / "include"
INCLUDE = re.compile(r"^#include <([^>]+)>", re.MULTILINE)
COMMENT_OR_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])'""", re.DOTALL)


def names_of_others():
    owner, names = "", {}
    for line in (source / "tests/structure/macros_of_others.txt").read_text().splitlines():
        if line.endswith(":"):
            owner = line[:-1]
        elif not line.startswith("#"):
            names.update({name: owner for name in line.split()})
    return names


def existing(headers):
    """Those of the headers of others that the compiler finds."""
    unit = "".join(f"#if __has_include(<{header}>)\nFOUND {header}\n#endif\n" for header in headers)
    output = subprocess.run([compiler, *flags, "-E", "-P", "-x", "c++", "-"], input=unit, capture_output=True, text=True, check=True)
    return set(re.findall(r"^FOUND (.+)$", output.stdout, re.MULTILINE))


names = names_of_others()
texts = {str(path.relative_to(include)): path.read_text() for path in sorted(include.rglob("*.[hci][pu][ph]"))}
errors = []
word = re.compile(r"\b(" + "|".join(names) + r")\b")
for header, text in texts.items():
    code = COMMENT_OR_TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for number, line in enumerate(code.splitlines(), 1):
        if not line.lstrip().startswith("#include"):
            errors += [f"{header}:{number}: {name} is a macro of {names[name]}" for name in word.findall(line)]

includes = {header: INCLUDE.findall(text) for header, text in texts.items()}
others = sorted({other for of in includes.values() for other in of if other not in texts})
found = existing(others)
left_out = {header for header, of in includes.items() if header.endswith((".cuh", "src.hpp")) or not found.issuperset(set(of) - texts.keys())}
while more := {header for header, of in includes.items() if header not in left_out and left_out.intersection(of)}:
    left_out |= more
compiled = [header for header in texts if header not in left_out]

with tempfile.TemporaryDirectory() as folder:
    unit = Path(folder) / "unit.cpp"
    unit.write_text("".join(f"#include <{other}>\n" for other in others if other in found)
                    + "".join(f"#undef {name}\n#define {name} )a macro of others(\n" for name in names)
                    + "".join(f"#include <{header}>\n" for header in compiled))
    output = subprocess.run([compiler, *flags, "-fsyntax-only", str(unit)], capture_output=True, text=True)
    if output.returncode != 0:
        errors.append(output.stderr)

print("\n".join(errors), end="\n" if errors else "")
print(f"{len(texts)} headers searched for {len(names)} names, {len(compiled)} compiled after them, {len(errors)} errors")
sys.exit(1 if errors or len(compiled) < 200 else 0)
