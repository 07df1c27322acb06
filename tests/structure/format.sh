#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: format.sh DIR. Every C++ and CUDA file of DIR's include, examples and tests has the layout of .clang-format.
# To give it to them: clang-format-16 -i FILE...
set -euo pipefail
cd "$1"
find include examples tests -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' | sort |
    xargs clang-format-16 --dry-run -Werror --ferror-limit=1
