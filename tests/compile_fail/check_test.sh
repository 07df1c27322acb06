#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: check_test.sh COMPILER. The harness refuses cases that prove nothing: a twin that does not compile, a mistake
# that does, a sentence that is not said, a case without an expectation.
set -euo pipefail
check=$(dirname "${BASH_SOURCE[0]}")/check.sh
twins=$(dirname "${BASH_SOURCE[0]}")/twins.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect RESULT TEXT: the case is the text.
expect() {
    printf '%s\n' "$2" >"$folder/case.cpp"
    if "$check" "$folder/case.cpp" "$compiler" >"$folder/output" 2>&1; then result=passes; else result=fails; fi
    if [ "$result" != "$1" ]; then
        printf '%s:\n%s\n' "$result, though it should not" "$2"
        cat "$folder/output"
        exit 1
    fi
}
compiler=$1
wrong='#ifdef MISTAKE
static_assert(sizeof(int) == 1, "an int is not a byte");
#endif'

expect passes "// expect: an int is not a byte
$wrong"
expect passes "// expect: an int is not a byte
// errors-at-most: 1
$wrong"
expect fails "// expect: an int is a byte
$wrong"
expect fails "$wrong"
expect fails '// expect: int
#ifdef MISTAKE
int right;
#endif'
expect fails "// expect: an int is not a byte
// errors-at-most: 1
$wrong
#ifdef MISTAKE
int more = \"errors\";
#endif"

# Twins together: two that use the same name compile, and one that is broken is named, wherever it stands.
printf '%s\n' "struct Net {};" "$wrong" >"$folder/first.cpp"
printf '%s\n' "struct Net { int n; };" "$wrong" >"$folder/second.cpp"
printf '%s\n' "int twin = \"broken\";" "$wrong" >"$folder/broken.cpp"
"$twins" "$folder/first.cpp" "$folder/second.cpp" -- "$compiler"
for order in "broken second" "first broken"; do
    read -ra names <<<"$order"
    if "$twins" "$folder/${names[0]}.cpp" "$folder/${names[1]}.cpp" -- "$compiler" >"$folder/output" 2>&1; then
        echo "a broken twin passes"
        exit 1
    fi
    grep -q 'broken\.cpp' "$folder/output" || { echo "the broken twin is not named:"; cat "$folder/output"; exit 1; }
done
if "$twins" -- "$compiler" >"$folder/output" 2>&1; then echo "no twin at all passes"; exit 1; fi
