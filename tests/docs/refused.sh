#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: refused.sh BLOCK.refused.cpp BLOCK.txt COMPILER FLAGS... . The block must not compile, and the output of the compiler must contain
# each line of the text; `...` in a line stands for any text.
set -euo pipefail
export LC_ALL=C
block=$1 text=$2
shift 2
if output=$("$@" -fsyntax-only -x c++ "$block" 2>&1); then
    echo "$block compiles"
    exit 1
fi
# clang splits a long message, and g++ escapes quotation marks and apostrophes in it.
flat=$(tr -s ' \n' '  ' <<<"$output" | sed -E "s/\"\}, [A-Za-z0-9_:]*FixedString<[0-9]+>\{\"//g; s/\\\\(['\"])/\1/g")
lines=0
while IFS= read -r line; do
    [ -n "${line// /}" ] || continue
    lines=$((lines + 1))
    rest=$flat
    while [ -n "$line" ]; do
        piece=${line%%...*}
        if [ "$piece" = "$line" ]; then line=; else line=${line#*...}; fi
        piece=$(sed 's/^ *//; s/ *$//' <<<"$piece")
        case $rest in
            *"$piece"*) rest=${rest#*"$piece"} ;;
            *)
                printf 'the compiler does not print: %s\nIts output:\n%s\n' "$piece" "$output"
                exit 1
                ;;
        esac
    done
done <"$text"
[ "$lines" -gt 0 ] || { echo "$text is empty"; exit 1; }
echo "refused, with all $lines lines"
