#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: check_test.sh COMPILER. check.sh rejects cases that check nothing: a twin that does not compile, an error that does, a message
# that is not printed, a case without an expectation. twins.sh and errors.sh, which compile all cases together, reject them too.
set -euo pipefail
check=$(dirname "${BASH_SOURCE[0]}")/check.sh
twins=$(dirname "${BASH_SOURCE[0]}")/twins.sh
errors=$(dirname "${BASH_SOURCE[0]}")/errors.sh
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
wrong='#ifdef WITH_ERROR
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
#ifdef WITH_ERROR
int right;
#endif'
expect fails "// expect: an int is not a byte
// errors-at-most: 1
$wrong
#ifdef WITH_ERROR
int more = \"errors\";
#endif"

# Cases of one name would be one case; the files are named.
for name in first second; do printf '// case: %s\nint n;\n// case: other\n' "$name" >"$folder/$name.txt"; done
if "$(dirname "$check")/split.sh" "$folder/split" "$folder/first.txt" "$folder/second.txt" >"$folder/output" 2>&1 ||
    ! grep -q 'second.txt: two cases are named other' "$folder/output"; then
    echo "two cases of one name pass"
    exit 1
fi
[ "$(tail -n 1 "$folder/split/first.cpp")" = "int n;" ] || { echo "a case is not what its file says"; exit 1; }

# Cases that share a text: each has its own statements, and a mark that names no case is an error.
printf '// case: %s\n' first second >"$folder/shared.txt"
printf '%s\n' '/* wrong */ int w;' '/* right */ int r;' '/* wrong first */ int f;' '/* second */ struct S {' '    int s;' '};' >>"$folder/shared.txt"
"$(dirname "$check")/split.sh" "$folder/split" "$folder/shared.txt"
# has NAME TEXT FLAGS...: what the preprocessor leaves of the case.
has() {
    local left
    left=$("$compiler" -E -P "${@:3}" "$folder/split/$1.cpp" | grep -v using | tr -d ' \n')
    [ "$left" = "$2" ] || { echo "of the case $1 there is left: $left"; exit 1; }
}
has first 'intr;structS{ints;};'
has second 'intr;structS{ints;};'
has first 'intw;intf;structS{ints;};' -DWITH_ERROR
has second 'intw;' -DWITH_ERROR
echo '/* third */ int n;' >>"$folder/shared.txt"
if "$(dirname "$check")/split.sh" "$folder/split" "$folder/shared.txt" >"$folder/output"; then echo "a mark of no case passes"; exit 1; fi

# Twins together: two that use the same name compile, and a broken one is named at any position.
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

# Errors together: a case that checks nothing is named, and the others are not.
# together RESULT NAMES NAMED: the errors of these cases.
together() {
    local paths=() name
    for name in $2; do paths+=("$folder/$name.cpp"); done
    if "$errors" "${paths[@]}" -- "$compiler" >"$folder/output" 2>&1; then result=passes; else result=fails; fi
    if [ "$result" != "$1" ] || { [ "$1" = fails ] && ! grep -q "^$3" "$folder/output"; } || grep -q "^first\.cpp: " "$folder/output"; then
        printf 'the errors of %s together, of which %s\n' "$2" "$result"
        cat "$folder/output"
        exit 1
    fi
}
error() { printf '// expect: %s\n// errors-at-most: 1\n#ifdef WITH_ERROR\n%s\n#endif\n' "$2" "$3" >"$folder/$1.cpp"; }
error first "one is wrong" 'struct Net {}; static_assert(sizeof(Net) == 0, "one is wrong");'
error second "two is wrong in Net of" 'struct Net { int n; }; template <class T> struct Of { static_assert(sizeof(T) == 0, "two is wrong in Net of"); }; Of<Net> n;'
error of_the_first "one is wrong" 'struct Net {};'
error right "three is wrong" ''
error twice "four is wrong" 'int a = "four"; static_assert(sizeof(a) == 0, "four is wrong");'
together passes "first second" ""
together fails "first of_the_first second" "of_the_first.cpp: the case compiles with its error"
together fails "right first" "right.cpp: the case compiles with its error"
together fails "second twice first" "twice.cpp: 2 errors where at most 1"
error second "three is wrong" 'static_assert(sizeof(int) == 0, "two is wrong");'
together fails "first second" "second.cpp: the compiler does not report: three is wrong"
printf '#error of a header\n' >"$folder/header.hpp"
error second "two is wrong" 'static_assert(sizeof(int) == 0, "two is wrong");'
sed -i '1i #include <header.hpp>' "$folder/second.cpp"
if "$errors" "$folder/second.cpp" "$folder/first.cpp" -- "$compiler" "-I$folder" >"$folder/output" 2>&1 || ! grep -q '^these messages name no case' "$folder/output"; then
    echo "a message that is no case's passes:"
    cat "$folder/output"
    exit 1
fi
if "$errors" -- "$compiler" >"$folder/output" 2>&1; then echo "no error at all passes"; exit 1; fi
