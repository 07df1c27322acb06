#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each header can be the first that a file includes.

    headers_alone.py SOURCE_FOLDER COMPILER FLAGS...

Clang compiles all headers together, each once, as submodules of one module of header files, in which a header sees only what it includes
itself. It takes the standard library as one module, which hides a missing include of one of its headers: so a header whose includes of Cupola,
followed to their end, include no standard header for a name of std:: that it uses is an error too. standard_names.txt has the names; one
that is in no list is an error, so that the lists stay whole.

Headers that include one another are parsed from one of them alone, so each of these is also compiled by itself."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from own_headers import OwnHeaders, without_comments

source, compiler, flags = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
NAME = re.compile(r"\bstd::((?:ranges::|chrono::|this_thread::|views::|filesystem::|numbers::)?[A-Za-z_0-9]+)")


def headers_of_names():
    """For each name of std::, the headers that declare it."""
    result = {}
    for line in (Path(__file__).parent / "standard_names.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            header, names = line.split(":", 1)
            for name in names.split():
                result.setdefault(name, set()).add(header)
    return result


def closure(header):
    """What the header includes, itself or by headers of include/."""
    result, left = set(), [header]
    while left:
        for include in headers.includes[left.pop()]:
            if include not in result:
                result.add(include)
                if include in headers.includes:
                    left.append(include)
    return result


def missing_includes():
    declared = headers_of_names()
    for header, text in headers.texts.items():
        missing = {}
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            for name in NAME.findall(line):
                if name not in declared:
                    missing[name] = f"{header}:{number}: std::{name} is in no list of standard_names.txt"
                elif not declared[name] & closures[header]:
                    missing.setdefault(name, f"{header}:{number}: std::{name} needs <{'> or <'.join(sorted(declared[name]))}>")
        yield from missing.values()


def compile_alone(folder):
    """The compiler's messages."""
    options = [*flags, "-fmodules", "-fno-implicit-modules", "-fno-implicit-module-maps", "-Xclang", "-fmodules-local-submodule-visibility"]

    def messages(*arguments, **text):
        result = subprocess.run([compiler, "-x", "c++", *arguments, *options], capture_output=True, text=True, **text)
        return [result.stderr] if result.returncode else []

    def compile_module(name, submodules):
        modulemap = folder / f"{name}.modulemap"
        modulemap.write_text("\n".join([f"module {name} {{", *submodules, "}"]))
        options.append(f"-fmodule-name={name}")
        yield from messages("-Xclang", "-emit-module", "-c", modulemap, "-o", folder / f"{name}.pcm")
        options.pop()

    # The headers of others: one submodule is the standard library, and each other header, which may need that before it, is one. In place
    # of all of them, ours include files that import these submodules.
    others = sorted({other for header in headers.compiled for other in headers.includes[header]} - headers.texts.keys())
    standard = [other for other in others if re.fullmatch("[a-z_]+", other)]
    (folder / "standard.hpp").write_text("".join(f"#include <{other}>\n" for other in standard))
    submodules = ['module standard { header "standard.hpp" export * }']
    for number, other in enumerate(others):
        name = "standard"
        if other not in standard:
            name = f"other{number}"
            (folder / f"{name}.hpp").write_text(f'#include "standard.hpp"\n#include <{other}>\n')
            submodules.append(f'module {name} {{ header "{name}.hpp" export * }}')
        importing = folder / "importing" / other
        importing.parent.mkdir(parents=True, exist_ok=True)
        importing.write_text(f"#pragma clang module import others.{name}\n")
    yield from compile_module("others", submodules)
    options[:0] = ["-isystem", folder / "importing", f"-fmodule-file={folder}/others.pcm"]

    yield from compile_module("cupola", [f'module header{number} {{ header "{source}/include/{header}" export * }}' if header in alone else
                                         f'textual header "{source}/include/{header}"' for number, header in enumerate(headers.compiled)])
    for header in alone:
        if any(header in closures[other] for other in closures[header].intersection(alone) - {header}):
            yield from messages("-fsyntax-only", "-", input=f"#include <{header}>\n")


headers = OwnHeaders(source, compiler, flags)
alone = [header for header in headers.compiled if header.endswith(".hpp")]
closures = {header: closure(header) for header in headers.texts}
with tempfile.TemporaryDirectory() as folder:
    errors = [*missing_includes(), *compile_alone(Path(folder))]
print("\n".join(errors), end="\n" if errors else "")
print(f"{len(alone)} headers compiled alone, {len(headers.texts)} searched for names of std::, {len(errors)} errors")
sys.exit(1 if errors or len(alone) < 200 else 0)
