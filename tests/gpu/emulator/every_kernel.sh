#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: every_kernel.sh INCLUDE FOLDER. Fails unless the tests on the emulator, which write the names of the kernels that ran to files
# in FOLDER, ran every kernel that a header in INCLUDE defines, and unless each begins with begin_kernel(): nothing may be read or written
# before it where kernels are launched before the one before them has ended.
set -euo pipefail
kernels=$(grep -rh -A3 '__global__' "$1" | grep -oE '[a-z_0-9]+_kernel\(' | grep -v '^begin_kernel' | sort -u)
count=$(wc -l <<<"$kernels")
[ "$count" -eq "$(grep -rhoE '\b__global__ ' "$1" | wc -l)" ] || { echo "not every kernel's name was found: $kernels"; exit 1; }
begun=$(grep -rh -A12 '__global__ ' "$1" | grep -A1 -E '\) \{$' | grep -cE '^    begin_kernel\(\);$' || true)
[ "$begun" -eq "$count" ] || { echo "$begun of $count kernels begin with begin_kernel()"; exit 1; }
missing=0
for kernel in $kernels; do
    grep -rqE "\b${kernel%(}[<(]" "$2" || { echo "no test on the emulator runs ${kernel%(}"; missing=1; }
done
[ "$missing" -eq 0 ] && echo "all $count kernels ran"
