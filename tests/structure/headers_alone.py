#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each header can be the first that a file includes.

    headers_alone.py SOURCE_FOLDER COMPILER FLAGS...

Compiles a file with each header alone. Half of that time would be the standard library's headers, so these are precompiled, which hides a
missing include of one: so a header whose includes of Cupola, followed to their end, include no standard header for a name of std:: that it
uses is an error too. standard_names.txt has the names; one that is in no list is an error, so that the lists stay whole."""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from own_headers import OwnHeaders, without_comments

source, compiler, flags = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
NAME = re.compile(r"\bstd::((?:ranges::|chrono::|this_thread::|views::|filesystem::|numbers::)?[A-Za-z_0-9]+)")


def headers_of_names():
    """For each name of std::, the headers that declare it."""
    result = {}
    for line in (source / "tests/structure/standard_names.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            header, names = line.split(":", 1)
            for name in names.split():
                result.setdefault(name, set()).add(header)
    return result


def closure(headers, header):
    """What the header includes, itself or by headers of include/."""
    result, left = set(), [header]
    while left:
        for include in headers.includes[left.pop()]:
            if include not in result:
                result.add(include)
                if include in headers.includes:
                    left.append(include)
    return result


def missing_includes(headers):
    declared = headers_of_names()
    for header, text in headers.texts.items():
        included = closure(headers, header)
        missing = {}
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            for name in NAME.findall(line):
                if name not in declared:
                    missing[name] = f"{header}:{number}: std::{name} is in no list of tests/structure/standard_names.txt"
                elif not declared[name] & included:
                    missing.setdefault(name, f"{header}:{number}: std::{name} needs <{'> or <'.join(sorted(declared[name]))}>")
        yield from missing.values()


def compile_alone(headers):
    """The compiler's messages. Headers of others than the standard library are not precompiled."""
    with tempfile.TemporaryDirectory() as folder:
        standard = Path(folder) / "standard.hpp"
        standard.write_text("".join(f"#include <{other}>\n" for other in headers.others if re.fullmatch("[a-z_]+", other)))
        subprocess.run([compiler, *flags, "-x", "c++-header", str(standard), "-o", f"{standard}.pch"], check=True)

        def messages(header):
            run = subprocess.run([compiler, *flags, "-include-pch", f"{standard}.pch", "-fsyntax-only", "-x", "c++", "-"],
                                 input=f"#include <{header}>\n", capture_output=True, text=True)
            return run.stderr if run.returncode else ""

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            yield from filter(None, pool.map(messages, alone))


headers = OwnHeaders(source, compiler, flags)
alone = [header for header in headers.compiled if header.endswith(".hpp")]
errors = [*missing_includes(headers), *compile_alone(headers)]
print("\n".join(errors), end="\n" if errors else "")
print(f"{len(alone)} headers compiled alone, {len(headers.texts)} searched for names of std::, {len(errors)} errors")
sys.exit(1 if errors or len(alone) < 200 else 0)
