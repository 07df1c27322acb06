#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: tidy.sh SOURCE_DIR FLAGS... . Fails with what clang-tidy-16 finds, by the checks of .clang-tidy, in the headers that need no CUDA,
# with those of libraries that are installed, MPI among them, and in a training of the tutorial's network, which instantiates their templates.
# All are one unit, because most of the time is that of the standard library.
set -euo pipefail
cd "$1"
shift
unit=$(mktemp --suffix=.cpp)
trap 'rm -f "$unit"' EXIT
if command -v mpicc >/dev/null; then
    for folder in $(mpicc --showme:incdirs); do set -- "$@" -isystem "$folder"; done
fi
PYTHONPATH=tests/structure python3 - clang++-16 "$@" >"$unit" <<'END'
import sys
from own_headers import OwnHeaders

for header in OwnHeaders(".", sys.argv[1], sys.argv[2:]).compiled:
    if header.endswith(".hpp"):
        print(f"#include <{header}>")
END
headers=$(wc -l <"$unit")
[ "$headers" -gt 100 ] || { echo "only these headers were found:"; cat "$unit"; exit 1; }
cat >>"$unit" <<END
#include "$PWD/examples/cifar10_train/run.hpp"
template int cifar10::run_network<cifar10::Model::tutorial, cifar10::Precision::float32, cifar10::Place::host>(
    const cifar10::TrainOptions&, const cupola::ImageData&, const cupola::Schedule&, const std::string&);
END
clang-tidy-16 --quiet --warnings-as-errors='*' --config-file=.clang-tidy "$unit" -- "$@"
echo "$headers headers checked"
