# SPDX-License-Identifier: Apache-2.0
"""The headers of include/, for the tests that read and compile all of them."""

import re
import subprocess
from pathlib import Path

INCLUDE = re.compile(r"^#include <([^>]+)>", re.MULTILINE)
COMMENT_OR_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])'""", re.DOTALL)


def without_comments(text):
    """The text with spaces in place of comments and literals."""
    return COMMENT_OR_TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


class OwnHeaders:
    """`texts` of the headers and .ipp files by their path in include/, and their `includes`; `others` are the headers of others that they
    include, `found` those that the compiler finds. `compiled` are the headers whose includes all exist here; the rest is CUDA's kernels, what
    needs a library that is not installed, and src.hpp and mpi_src.hpp, which are not for programs of headers alone."""

    def __init__(self, source, compiler, flags):
        include = Path(source) / "include"
        self.texts = {str(path.relative_to(include)): path.read_text() for path in sorted(include.rglob("*.[hci][pu][ph]"))}
        self.includes = {header: INCLUDE.findall(text) for header, text in self.texts.items()}
        self.others = sorted({other for of in self.includes.values() for other in of if other not in self.texts})
        unit = "".join(f"#if __has_include(<{header}>)\nFOUND {header}\n#endif\n" for header in self.others)
        output = subprocess.run([compiler, *flags, "-E", "-P", "-x", "c++", "-"], input=unit, capture_output=True, text=True, check=True)
        self.found = set(re.findall(r"^FOUND (.+)$", output.stdout, re.MULTILINE))
        left_out = {header for header, of in self.includes.items()
                    if header.endswith((".cuh", "src.hpp")) or not self.found.issuperset(set(of) - self.texts.keys())}
        while more := {header for header, of in self.includes.items() if header not in left_out and left_out.intersection(of)}:
            left_out |= more
        self.compiled = [header for header in self.texts if header not in left_out]
