#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: twins.sh CASE.cpp... -- COMPILER FLAGS... . Checks that all cases compile without their errors: in one unit, each in a namespace
# of its own, after the headers of all of them. This takes a tenth of the time of the single cases.
set -euo pipefail
export LC_ALL=C

cases=()
while [ "$1" != -- ]; do
    cases+=("$1")
    shift
done
shift
[ ${#cases[@]} -gt 0 ] || { echo "there is no case"; exit 1; }
unit=$(mktemp --suffix=.cpp)
trap 'rm -f "$unit"' EXIT
{
    sed -n '/^#include </p' "${cases[@]}" | sort -u
    for case_file in "${cases[@]}"; do
        name=${case_file##*/}
        printf 'namespace twin_%s {\n#include "%s"\n}\n' "${name%.cpp}" "$(realpath "$case_file")"
    done
} >"$unit"
if ! output=$("$@" -std=c++20 -fsyntax-only "$unit" 2>&1); then
    printf 'a twin without its error does not compile:\n%s\n' "$output"
    exit 1
fi
echo "${#cases[@]} twins compile"
