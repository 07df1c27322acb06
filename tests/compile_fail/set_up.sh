#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: set_up.sh COMPILER FLAGS... . Compiles programs with an option or a header that is missing: the first error says which, and
# little follows.
set -euo pipefail
export LC_ALL=C
unit=$(mktemp --suffix=.cpp)
trap 'rm -f "$unit"' EXIT

# expect MESSAGE PROGRAM COMMAND...: the first error has the message, and there are at most two.
checked=0
expect() {
    local message=$1 output errors pieces
    printf '%b\n' "$2" >"$unit"
    shift 2
    if output=$("$@" -fsyntax-only "$unit" 2>&1); then echo "this compiles: $*"; exit 1; fi
    errors=$(grep -E 'error: |message = ' <<<"$output" || true)
    # clang prints the message of the first error in its notes, and in pieces.
    pieces=$(head -n 30 <<<"$output" | tr -s ' \n' '  ' | sed -E 's/"\}, FixedString<[0-9]+>\{"//g')
    if [[ ${errors%%$'\n'*} != *"$message"* && $pieces != *"{\"$message\"}"* ]] || [ "$(grep -c ' error: ' <<<"$output")" -gt 2 ]; then
        printf 'the first error is not: %s\n%s\nwith %s\n' "$message" "$(head -n 30 <<<"$output")" "$*"
        exit 1
    fi
    checked=$((checked + 1))
}
without() { # without FLAG FLAGS...: the array `rest` of the other flags
    local flag=$1 each
    shift
    rest=()
    for each in "$@"; do [ "$each" = "$flag" ] || rest+=("$each"); done
}

whole='#include <cupola/cupola.hpp>\n#include <cupola/host.hpp>'
without -std=c++20 "$@"
expect 'Cupola needs C++20: compile with -std=c++20' "$whole" "${rest[@]}" -std=gnu++17
expect 'Cupola needs C++20: compile with -std=c++20' '#include <cupola/data/csv.hpp>' "${rest[@]}" -std=c++17
expect 'Cupola needs C++20: compile with -std=c++20' '#include <cupola/predict.hpp>' "${rest[@]}" -std=c++14
expect 'Cupola needs exceptions: compile without -fno-exceptions' "$whole" "$@" -fno-exceptions
without -fopenmp "$@"
expect 'cupola/device/host.hpp needs OpenMP: compile and link with -fopenmp' '#include <cupola/host.hpp>' "${rest[@]}"
expect 'Host is a device whose header is not included: cupola/host.hpp has Host, and cupola/cuda.hpp Cuda' \
    '#include <cupola/cupola.hpp>\nusing namespace cupola;\nstruct Net : Sequential<Input<4>, Linear<3>> {};\n
    DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, Host> training({.batch_size = 8});' "$@"
# The definitions of a program that is compiled separately. Twice in a file: the preprocessor finds it, and the rest would take seconds.
separate=-DCUPOLA_SEPARATE_COMPILATION
expect 'cupola/src.hpp is for programs whose files are all compiled with -DCUPOLA_SEPARATE_COMPILATION: define it' \
    '#include <cupola/src.hpp>' "$@"
expect 'cupola/src.hpp must be included before any other header of Cupola: include it first, or in a file of its own' \
    '#include <cupola/core/error.hpp>\n#include <cupola/src.hpp>' "$@" "$separate"
expect 'cupola/src.hpp is included twice in this file' '#include <cupola/src.hpp>\n#include <cupola/src.hpp>' "$@" "$separate" -E -o /dev/null
expect 'cupola/mpi_src.hpp is for programs whose files are all compiled with -DCUPOLA_SEPARATE_COMPILATION: define it' \
    '#include <cupola/mpi_src.hpp>' "$@"
expect 'cupola/mpi_src.hpp must be included before any other header of Cupola: include it first, or in a file of its own' \
    '#include <cupola/core/error.hpp>\n#include <cupola/mpi_src.hpp>' "$@" "$separate"
for old in CUPOLA_OPS CUPOLA_OPS_HAS=7 CUPOLA_INLINE= CUPOLA_COMPILING_OPS; do
    expect 'CUPOLA_OPS and its like are gone: define CUPOLA_SEPARATE_COMPILATION, and include <cupola/src.hpp> in one file' \
        '#include <cupola/cupola.hpp>' "$@" "-D$old"
done
echo "$checked programs are rejected with the reason"
