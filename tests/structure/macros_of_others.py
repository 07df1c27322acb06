#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No header uses a name that Qt, X11 or C's complex.h define as a macro.

    macros_of_others.py SOURCE_FOLDER COMPILER FLAGS...

macros_of_others.txt has the names. Every header is searched for them outside comments and texts. What a header's own macros join to such a
name, the preprocessor finds: in one unit that defines all of them, after the headers of others that ours include, and then includes every
header whose includes exist here (own_headers.py). headers_alone.py compiles the headers."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from own_headers import OwnHeaders, without_comments

source, compiler, flags = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]


def names_of_others():
    owner, names = "", {}
    for line in (source / "tests/structure/macros_of_others.txt").read_text().splitlines():
        if line.endswith(":"):
            owner = line[:-1]
        elif not line.startswith("#"):
            names.update({name: owner for name in line.split()})
    return names


names = names_of_others()
headers = OwnHeaders(source, compiler, flags)
errors = []
word = re.compile(r"\b(" + "|".join(names) + r")\b")
for header, text in headers.texts.items():
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        if not line.lstrip().startswith("#include"):
            errors += [f"{header}:{number}: {name} is a macro of {names[name]}" for name in word.findall(line)]

MARK = "a macro of others"
with tempfile.TemporaryDirectory() as folder:
    unit = Path(folder) / "unit.cpp"
    unit.write_text("".join(f"#include <{other}>\n" for other in headers.others if other in headers.found)
                    + "".join(f"#undef {name}\n#define {name} {MARK}\n" for name in names)
                    + "".join(f"#include <{header}>\n" for header in headers.compiled))
    output = subprocess.run([compiler, *flags, "-E", str(unit)], capture_output=True, text=True)
if output.returncode != 0:
    errors.append(output.stderr)
place, included = "", set()
for line in output.stdout.splitlines():
    if line.startswith("# "):
        place = line.split('"')[1]
        included.add(place)
    elif MARK in line:
        errors.append(f"{place}: the preprocessor makes of its macros {line.strip()}")
errors += [f"{header} is not in the unit" for header in headers.compiled if not any(of.endswith(f"/{header}") for of in included)]

print("\n".join(errors), end="\n" if errors else "")
print(f"{len(headers.texts)} headers searched for {len(names)} names, {len(headers.compiled)} preprocessed after them, {len(errors)} errors")
sys.exit(1 if errors or len(headers.compiled) < 200 else 0)
