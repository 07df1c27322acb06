#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: format.sh DIR. Checks that every C++ and CUDA file in include, examples and tests of DIR has the layout of
# .clang-format, and that no line in include and examples has more than 120 columns: clang-format does not wrap comments
# and string literals here. To correct a file: clang-format-16 -i FILE...
set -euo pipefail
cd "$1"
find include examples tests -name '*.[chi]pp' -o -name '*.cu' -o -name '*.cuh' | sort |
    xargs clang-format-16 --dry-run -Werror --ferror-limit=1
long=$(LC_ALL=C.UTF-8 grep -rnE '^.{121,}' --include='*.[chi]pp' --include='*.cu' --include='*.cuh' include examples) || true
[ -z "$long" ] || { printf '%s\n' "lines of more than 120 columns:" "$long"; exit 1; }
