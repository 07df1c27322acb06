#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: format.sh DIR. Checks that every C++ and CUDA file in include, examples and tests of DIR has the layout of .clang-format.
# To correct a file: clang-format-16 -i FILE...
set -euo pipefail
cd "$1"
find include examples tests -name '*.[chi]pp' -o -name '*.cu' -o -name '*.cuh' | sort |
    xargs clang-format-16 --dry-run -Werror --ferror-limit=1
