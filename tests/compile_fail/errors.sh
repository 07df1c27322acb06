#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: errors.sh CASE.cpp... -- COMPILER FLAGS... . Does the work of check.sh for all cases together: the errors are in one unit, each
# in a namespace of its own, and each case is checked against the messages that name its file. Most of the time of a case is that of the
# headers, so this takes a tenth of the time of the single cases. g++ prints equal messages once, so two cases must not expect the same
# message: give them different names or numbers.
set -euo pipefail
export LC_ALL=C
source "$(dirname "${BASH_SOURCE[0]}")/expectations.sh"

cases=()
while [ "$1" != -- ]; do
    cases+=("$(realpath "$1")")
    shift
done
shift
[ ${#cases[@]} -gt 0 ] || { echo "there is no case"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
{
    sed -n '/^#include </p' "${cases[@]}" | sort -u
    for case_file in "${cases[@]}"; do
        name=${case_file##*/}
        printf 'namespace error_%s {\n#include "%s"\n}\n' "${name%.cpp}" "$case_file"
    done
} >"$folder/unit.cpp"
mkdir "$folder/output"
compiler=$1
is_clang "$compiler" && set -- "$@" -ferror-limit=0
if "$@" -std=c++20 -fsyntax-only -DWITH_ERROR "$folder/unit.cpp" >"$folder/all" 2>&1; then echo "the errors compile"; exit 1; fi

# A message begins with the lines about its place, which are before an error and, by g++, before a note.
printf '%s\n' "${cases[@]}" | awk -v folder="$folder" '
    function give() {
        for (i = 1; i <= count && message != ""; i++) {
            if (index(message, paths[i] ":") == 0) continue
            gsub(/error_[a-z0-9_]+::/, "", message)
            printf "%s", message >(folder "/output/" names[i])
            message = ""
        }
        if (message != "") printf "%s", message >(folder "/strays")
        message = ""
    }
    FNR == NR { paths[++count] = $0; sub(/.*\//, ""); names[count] = $0; next }
    /^(In file included|  *from )|: In |:   (recursively )?required / { where = where $0 "\n"; next }
    / (error|warning): / { give() }
    { message = message where $0 "\n"; where = "" }
    END { give() }' - "$folder/all"
failed=0
if [ -f "$folder/strays" ]; then
    printf 'these messages name no case:\n%s\n' "$(<"$folder/strays")"
    failed=1
fi
for case_file in "${cases[@]}"; do
    name=${case_file##*/}
    if [ ! -f "$folder/output/$name" ]; then
        result="the case compiles with its error"
    elif result=$(meets_expectations "$case_file" "$compiler" "$(<"$folder/output/$name")"); then
        echo "${name%.cpp}: $result"
        continue
    fi
    printf '%s: %s\n' "$name" "$result"
    failed=1
done
exit $failed
