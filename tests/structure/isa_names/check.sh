#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   check.sh FOLDER COMPILER FLAGS...
#
# The name of the inline namespace depends on the instruction set and on the standard library's macros. Checks its name for each kind of
# flags; that two units, for AVX-512 and for AVX-512 with BF16, share no function of Cupola in one program but the exceptions' members,
# which use no instruction beyond x86-64, and share all of them if both link to a cupola::ops without BF16; that a file for instructions
# which the library does not have gives one error; that a file with another layout of the standard library's types does not link to it;
# that it has all constructors; and that a file catches what another file or shared library throws that was compiled with other flags.
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
# The layout of the standard library's types.
if "${compiler[@]}" -E -dM -x c++ - <<<'#include <version>' | grep -q '__GLIBCXX__'; then
    named v0_1_glibcxx_debug -march=x86-64 -D_GLIBCXX_DEBUG
    named v0_1_avx2_glibcxx_debug -march=x86-64-v3 -D_GLIBCXX_DEBUG
    named v0_1_avx512_glibcxx_debug -DCUPOLA_OPS -march=sapphirerapids -D_GLIBCXX_DEBUG
    named v0_1_cow_string -march=x86-64 -D_GLIBCXX_USE_CXX11_ABI=0
    named v0_1_glibcxx_debug_cow_string -march=x86-64 -D_GLIBCXX_USE_CXX11_ABI=0 -D_GLIBCXX_DEBUG
    named v0_1 -march=x86-64 -D_GLIBCXX_ASSERTIONS
fi
errors=$("${compiler[@]}" -fpack-struct=1 -fsyntax-only -x c++ - 2>&1 <<<'#include <cupola/core/abi.hpp>' || true)
[[ $errors == *"included under #pragma pack or with -fpack-struct"* ]] || problem "with -fpack-struct: errors '$errors'"

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

compiled linked_without -DCUPOLA_OPS -march=x86-64-v4
compiled linked_with -DCUPOLA_OPS -march=x86-64-v4 -mavx512bf16
! rounds_by_instruction linked_with || problem "code that shares its names with a library without BF16 uses its instruction"
cmp -s "$folder/linked_without.names" "$folder/linked_with.names" ||
    problem "units that link to one cupola::ops have functions of different names"
[ "$(copies linked_without linked_with)" -eq 1 ] || problem "a program of both units does not share narrowed()"

# A library of other layouts: the linker names the layout of the file.
"${compiler[@]}" -O0 -fPIC -march=x86-64 -DTHROWN=library -c "$here/thrower.cpp" -o "$folder/library.o"
"${compiler[@]}" -O0 -fPIC -march=x86-64 -DCUPOLA_OPS -D_GLIBCXX_DEBUG -DTHROWN=debug -c "$here/thrower.cpp" -o "$folder/debug.o"
"${compiler[@]}" -O0 -fPIC -march=x86-64 -DCUPOLA_OPS -DTHROWN=user -c "$here/thrower.cpp" -o "$folder/user.o"
"${compiler[@]}" -shared -Wl,-z,defs "$folder/user.o" "$folder/library.o" -o "$folder/user.so" ||
    problem "a file does not link to a library of the same layout"
errors=$("${compiler[@]}" -shared -Wl,-z,defs "$folder/debug.o" "$folder/library.o" -o "$folder/debug.so" 2>&1 || true)
[[ $errors == *"undefined reference to "*"v0_1_glibcxx_debug::"* ]] ||
    problem "a file with -D_GLIBCXX_DEBUG, linked to a library without: '$errors'"

# The library has each constructor and destructor that a file which links to it calls, of an object of its own or of a base.
grep -v '^#include <cupola/\(cupola\|host\)\.hpp>' "$here/../../../cmake/ops/functions.cpp" >"$folder/functions.cpp"
cat >>"$folder/functions.cpp" <<<$'#include <cupola/core/error.hpp>\n#include <cupola/train/history.hpp>\n#include <cupola/metrics/metric.hpp>'
cat >"$folder/constructors.cpp" <<<$'#include <cupola/train/history.hpp>
struct Derived : cupola::History {};
void construct(cupola::History& from) { cupola::History object, copy(from); Derived derived, moved(static_cast<Derived&&>(derived)); }'
for each in functions constructors; do
    flags=()
    [ "$each" = functions ] || flags=(-DCUPOLA_OPS)
    "${compiler[@]}" -O1 -fPIC -march=x86-64 "${flags[@]}" -c "$folder/$each.cpp" -o "$folder/$each.o"
done
missing=$(comm -13 <(nm --defined-only "$folder/functions.o" | awk '{ print $3 }' | sort -u) \
    <(nm --undefined-only "$folder/constructors.o" | awk '/7History/ { print $2 }' | sort -u))
[ -z "$missing" ] || problem "the compiled library lacks: $missing"

# Instructions that every processor of the tests has.
"${compiler[@]}" -O1 -march=x86-64 -msse4.2 -DTHROWN=thrown_by_file -c "$here/thrower.cpp" -o "$folder/thrower.o"
"${compiler[@]}" -O1 -march=x86-64 -msse4.1 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -DTHROWN=thrown_by_library \
    -shared "$here/thrower.cpp" -o "$folder/libthrower.so"
"${compiler[@]}" -O1 -march=x86-64 -fvisibility=hidden "$here/catcher.cpp" "$folder/thrower.o" -L"$folder" -lthrower \
    -Wl,-rpath,"$folder" -o "$folder/catcher"
"$folder/catcher" || problem "a file does not catch the exception of one with other flags"

[ "$problems" -eq 0 ]
