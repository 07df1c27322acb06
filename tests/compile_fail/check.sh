#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: check.sh CASE.cpp COMPILER FLAGS... . A case holds a mistake under `#ifdef MISTAKE`. It passes if the file
# does not compile with it (that it compiles without is for twins.sh), and the compiler then says each sentence that the case expects:
#   // expect: the sentence          (of every compiler)
#   // expect-clang: the sentence    (of clang in the place of the lines above: it shortens long strings)
#   // errors-at-most: 2             (nothing more after the sentence; counts the lines with "error:")
set -euo pipefail
export LC_ALL=C

case_file=$1
shift
compile() { "$@" -std=c++20 -fsyntax-only "$case_file" 2>&1; }

fail() {
    printf '%s\n' "$1"
    exit 1
}

# What the case expects, in this compiler's words.
lines_of() { sed -n "s|^// *$1: *||p" "$case_file"; }
expected=$(lines_of expect)
if "$1" --version | grep -q clang && [ -n "$(lines_of expect-clang)" ]; then expected=$(lines_of expect-clang); fi
[ -n "$expected" ] || fail "$case_file has no line '// expect: ...'"
grep -q '^#if.*MISTAKE' "$case_file" || fail "$case_file has no '#ifdef MISTAKE'"

if output=$(compile "$@" -DMISTAKE); then fail "the mistake compiles"; fi

# Line breaks and repeated blanks of the compiler's layout do not count; nor do the joints of a sentence that clang, which
# cuts long strings short, was given in pieces.
flat=$(tr -s ' \n' '  ' <<<"$output" | sed -E "s/\"\}, FixedString<[0-9]+>\{\"//g; s/\\\\'/'/g")
while IFS= read -r sentence; do
    case $flat in
        *"$sentence"*) ;;
        *) fail "the compiler does not say: $sentence
It says:
$output" ;;
    esac
done <<<"$expected"

# g++ writes the inline namespace before every name: without flags for a processor it is the version alone.
if longer=$(grep -oE 'cupola::v[0-9]+_[0-9]+_[a-z0-9_]+' <<<"$output" | sort | uniq -c) && [ -n "$longer" ]; then
    fail "names in the messages are longer than they need be:
$longer"
fi

most=$(lines_of errors-at-most)
errors=$(grep -c 'error:' <<<"$output" || true)
if [ -n "$most" ] && [ "$errors" -gt "$most" ]; then
    fail "$errors errors where at most $most were expected:
$output"
fi
echo "refused with the expected sentence, $errors errors in $(wc -l <<<"$output") lines"
