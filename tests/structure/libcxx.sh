#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: libcxx.sh SOURCE_DIR FLAGS... . Every header compiles with clang 19 and libc++ 19, and the tests of texts and of tables, which
# read numbers, pass there. Skipped (status 77) without clang++-19 and libc++.
set -euo pipefail
export LC_ALL=C
source=$1
shift
compiler=(clang++-19 -stdlib=libc++)
if ! "${compiler[@]}" -E -x c++ - <<<'#include <version>' >/dev/null 2>&1; then echo "no clang++-19 with libc++"; exit 77; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Any version of LLVM's omp.h will do where clang 19 has none; its folder has headers of another clang.
if ! "${compiler[@]}" -fopenmp -E -x c++ - <<<'#include <omp.h>' >/dev/null 2>&1; then
    omp=$(find /usr/lib/llvm-*/lib/clang -name omp.h -print -quit)
    [ -n "$omp" ] || { echo "no omp.h of LLVM"; exit 77; }
    cp "$omp" "$folder"
fi
"$source/tests/structure/macros_of_others.py" "$source" "${compiler[0]}" "${compiler[1]}" "$@" -isystem "$folder"
"${compiler[@]}" "$@" -isystem "$folder" -O0 -I "$source/tests" -DDOCTEST_CONFIG_VOID_CAST_EXPRESSIONS "-DCUPOLA_SOURCE_DIR=\"$source\"" \
    "$source"/tests/{main,core/number_from_chars_test,data/csv_test,data/standardization_test}.cpp -fno-openmp -o "$folder/tests"
cd "$source"
"$folder/tests"
