#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   check.sh FOLDER COMPILER FLAGS...
#
# The name of the inline namespace depends on the instruction set and on the standard library's macros. Checks its name for each kind of
# flags; that two units, for AVX-512 and for AVX-512 with BF16, share no function of Cupola in one program but the exceptions' members,
# which use no instruction beyond x86-64; that the definitions of src.hpp have all constructors; and that a file catches what another file or
# shared library throws that was compiled with other flags.
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
# A file that is compiled separately has the same name.
named v0_1_avx -DCUPOLA_SEPARATE_COMPILATION -march=sandybridge
named v0_1_avx512_bf16 -DCUPOLA_SEPARATE_COMPILATION -march=sapphirerapids
# The layout of the standard library's types.
if "${compiler[@]}" -E -dM -x c++ - <<<'#include <version>' | grep -q '__GLIBCXX__'; then
    named v0_1_glibcxx_debug -march=x86-64 -D_GLIBCXX_DEBUG
    named v0_1_avx2_glibcxx_debug -march=x86-64-v3 -D_GLIBCXX_DEBUG
    named v0_1_avx512_bf16_glibcxx_debug -march=sapphirerapids -D_GLIBCXX_DEBUG
    named v0_1_cow_string -march=x86-64 -D_GLIBCXX_USE_CXX11_ABI=0
    named v0_1_glibcxx_debug_cow_string -march=x86-64 -D_GLIBCXX_USE_CXX11_ABI=0 -D_GLIBCXX_DEBUG
    named v0_1 -march=x86-64 -D_GLIBCXX_ASSERTIONS
fi
errors=$("${compiler[@]}" -fpack-struct=1 -fsyntax-only -x c++ - 2>&1 <<<'#include <cupola/core/abi.hpp>' || true)
[[ $errors == *"included under #pragma pack or with -fpack-struct"* ]] || problem "with -fpack-struct: errors '$errors'"

# compiled UNIT FLAGS...: prints the path of a file with the names of Cupola's functions in the unit.
compiled() {
    local unit=$1
    shift
    "${compiler[@]}" -O0 "$@" -DUNIT_FUNCTION="$unit" -fPIC -c "$here/unit.cpp" -o "$folder/$unit.o"
    nm --defined-only "$folder/$unit.o" | awk '$3 ~ /cupola/ { print $3 }' | sort >"$folder/$unit.names"
    grep -q narrowed "$folder/$unit.names" || problem "$unit holds no copy of narrowed()"
}
rounds_by_instruction() { objdump -d "$folder/$1.o" | grep vcvtneps2bf16 >/dev/null; }
# In the program, the linker keeps one copy per name.
copies() {
    "${compiler[@]}" -shared "$folder/$1.o" "$folder/$2.o" -o "$folder/both.so"
    nm --defined-only "$folder/both.so" | grep -c narrowed || true
}

compiled without -march=x86-64-v4
compiled with -march=x86-64-v4 -mavx512bf16
rounds_by_instruction with || problem "code for BF16 does not use its instruction: this test sees nothing"
! rounds_by_instruction without || problem "code for AVX-512 alone uses an instruction of BF16"
exceptions='^_ZT?[A-Z]*N[A-Z]*6cupola4v0_1[0-9]+(Error|InvalidArgument|DataError|UnreadableFile|DeviceError|DeviceLost|OutOfMemory|DivergedError|ReplicasDiffer|ProcessLost)(C|D|E|[0-9]*what)'
shared=$(comm -12 "$folder/without.names" "$folder/with.names")
others=$(grep -vE "$exceptions" <<<"$shared" || true)
[ -z "$others" ] || problem "units for AVX-512 with and without BF16 share functions: $others"
grep -qE "$exceptions" <<<"$shared" || problem "units with other flags do not share the exceptions: '$shared'"
# AVX's instructions begin with v, those on masks with k; the others are of BMI, MOVBE, and of what -march=native may add.
for level in -O0 -O2 -O3; do
    "${compiler[@]}" $level -march=sapphirerapids -fPIC -c "$here/exceptions.cpp" -o "$folder/exceptions.o"
    beyond=$(objdump -dr --no-show-raw-insn "$folder/exceptions.o" | awk '
        /^[0-9a-f]+ <.*>:$/ { inside = $2 ~ /^<_ZN6cupola4v0_1[0-9]/; if (inside) ++functions }
        inside && $2 ~ /^(v|k|andn|bextr|bls|bzhi|lzcnt|movbe|mulx|pdep|pext|popcnt|rorx|sarx|shlx|shrx|tzcnt|movdir|cmpccx)/ { print $2 }
        END { if (functions < 10) print "only " functions + 0 " functions" }' | sort -u)
    [ -z "$beyond" ] || problem "$level: the exceptions' members contain, beyond x86-64: $beyond"
done
[ "$(copies without with)" -eq 2 ] || problem "a program of both units does not hold two copies of narrowed()"

# The definitions have each constructor and destructor that another file calls, of an object of its own or of a base.
cat >"$folder/functions.cpp" <<<$'#define CUPOLA_SRC_FUNCTIONS
#include <cupola/core/error.hpp>\n#include <cupola/train/history.hpp>\n#include <cupola/metrics/metric.hpp>'
cat >"$folder/constructors.cpp" <<<$'#include <cupola/train/history.hpp>
struct Derived : cupola::History {};
void construct(cupola::History& from) { cupola::History object, copy(from); Derived derived, moved(static_cast<Derived&&>(derived)); }'
for each in functions constructors; do
    "${compiler[@]}" -O1 -fPIC -march=x86-64 -DCUPOLA_SEPARATE_COMPILATION -c "$folder/$each.cpp" -o "$folder/$each.o"
done
missing=$(comm -13 <(nm --defined-only "$folder/functions.o" | awk '{ print $3 }' | sort -u) \
    <(nm --undefined-only "$folder/constructors.o" | awk '/7History/ { print $2 }' | sort -u))
[ -z "$missing" ] || problem "the definitions lack: $missing"

# Instructions that every processor of the tests has.
"${compiler[@]}" -O1 -march=x86-64 -msse4.2 -DTHROWN=thrown_by_file -c "$here/thrower.cpp" -o "$folder/thrower.o"
"${compiler[@]}" -O1 -march=x86-64 -msse4.1 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -DTHROWN=thrown_by_library \
    -shared "$here/thrower.cpp" -o "$folder/libthrower.so"
"${compiler[@]}" -O1 -march=x86-64 -fvisibility=hidden "$here/catcher.cpp" "$folder/thrower.o" -L"$folder" -lthrower \
    -Wl,-rpath,"$folder" -o "$folder/catcher"
"$folder/catcher" || problem "a file does not catch the exception of one with other flags"

[ "$problems" -eq 0 ]
