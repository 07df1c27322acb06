#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   check.sh FOLDER COMPILER FLAGS...
#
# The name of the inline namespace depends on the instruction set. Checks its name for each kind of flags; that two units, for AVX-512
# and for AVX-512 with BF16, share no function of Cupola in one program, and share all of them if both link to a cupola::ops without
# BF16; and that a file for instructions which the library does not have gives one error. Nothing is run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1
shift
compiler=("$@")
mkdir -p "$folder"
problems=0
problem() {
    echo "$*"
    problems=$((problems + 1))
}

# name FLAGS...: prints the name of the inline namespace.
name() { "${compiler[@]}" "$@" -E -P -x c++ - <<<$'#include <cupola/core/abi.hpp>\nCUPOLA_ABI' | tail -n 1; }
# named NAME FLAGS...: checks that name.
named() {
    local wanted=$1 found
    shift
    found=$(name "$@")
    [ "$found" = "$wanted" ] || problem "flags '$*': the namespace is $found, not $wanted"
}
named v0_1 -march=x86-64
named v0_1_sse3 -march=nocona
named v0_1_ssse3 -march=core2
named v0_1_sse4_1 -march=x86-64 -msse4.1
named v0_1_sse4_2 -march=x86-64-v2
named v0_1_avx -march=sandybridge
named v0_1_avx_fma -march=bdver2
named v0_1_avx2_without_fma -march=x86-64 -mavx2
named v0_1_avx2 -march=x86-64 -mavx2 -mfma
named v0_1_avx2 -march=x86-64-v3
named v0_1_avx512f -march=x86-64-v3 -mavx512f
named v0_1_avx512f -march=x86-64-v3 -mavx512f -mavx512bw -mavx512vl
named v0_1_avx512 -march=x86-64-v4
named v0_1_avx512 -march=icelake-server
named v0_1_avx512_bf16 -march=cooperlake
named v0_1_avx512_bf16 -march=sapphirerapids
# A file of a program that links to cupola::ops has one of the names of the library.
named v0_1 -DCUPOLA_OPS -march=sandybridge
named v0_1_avx2 -DCUPOLA_OPS -march=x86-64-v3 -mavx512f
named v0_1_avx512 -DCUPOLA_OPS -march=sapphirerapids
named v0_1_avx512_bf16 -DCUPOLA_OPS -DCUPOLA_OPS_HAS=8 -march=sapphirerapids

for has in 1 2 8; do
    errors=$("${compiler[@]}" -DCUPOLA_OPS -DCUPOLA_OPS_HAS=$has -march=x86-64-v4 -fsyntax-only -x c++ - 2>&1 \
        <<<$'#include <cupola/tensor/algorithms.hpp>' | grep 'error:' || true)
    [[ $errors == *"cupola::ops has no code for this file's instructions (-march): add them to CUPOLA_OPS_ISAS"* &&
        $(wc -l <<<"$errors") -eq 1 ]] || problem "a library for $has, linked to a file for x86-64-v4: errors '$errors'"
done

# compiled UNIT FLAGS...: prints the path of a file with the names of Cupola's functions in the unit.
compiled() {
    local unit=$1
    shift
    "${compiler[@]}" -O0 "$@" -DUNIT_FUNCTION="$unit" -fPIC -c "$here/unit.cpp" -o "$folder/$unit.o"
    nm --defined-only "$folder/$unit.o" | awk '$3 ~ /cupola/ { print $3 }' | sort >"$folder/$unit.names"
    grep -q narrowed "$folder/$unit.names" || problem "$unit holds no copy of narrowed()"
}
rounds_by_instruction() { objdump -d "$folder/$1.o" | grep -q vcvtneps2bf16; }
# In the program, the linker keeps one copy per name.
copies() {
    "${compiler[@]}" -shared "$folder/$1.o" "$folder/$2.o" -o "$folder/both.so"
    nm --defined-only "$folder/both.so" | grep -c narrowed || true
}

compiled without -march=x86-64-v4
compiled with -march=x86-64-v4 -mavx512bf16
rounds_by_instruction with || problem "code for BF16 does not use its instruction: this test sees nothing"
! rounds_by_instruction without || problem "code for AVX-512 alone uses an instruction of BF16"
shared=$(comm -12 "$folder/without.names" "$folder/with.names")
[ -z "$shared" ] || problem "units for AVX-512 with and without BF16 share functions: $shared"
[ "$(copies without with)" -eq 2 ] || problem "a program of both units does not hold two copies of narrowed()"

compiled linked_without -DCUPOLA_OPS -march=x86-64-v4
compiled linked_with -DCUPOLA_OPS -march=x86-64-v4 -mavx512bf16
! rounds_by_instruction linked_with || problem "code that shares its names with a library without BF16 uses its instruction"
cmp -s "$folder/linked_without.names" "$folder/linked_with.names" ||
    problem "units that link to one cupola::ops have functions of different names"
[ "$(copies linked_without linked_with)" -eq 1 ] || problem "a program of both units does not share narrowed()"

[ "$problems" -eq 0 ]
