#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# format.sh accepts lines of 120 columns, and rejects longer ones, which clang-format leaves in comments and strings, and
# another layout.
set -euo pipefail
script=$(dirname "${BASH_SOURCE[0]}")/format.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/include" "$tree/examples" "$tree/tests"
cp "$(dirname "${BASH_SOURCE[0]}")/../../.clang-format" "$tree"

# expect accepted|refused FILE TEXT: checks a tree in which this file alone has this text.
expect() {
    printf '%s\n' "$3" >"$tree/$2"
    if "$script" "$tree" >"$tree/output" 2>&1; then result=accepted; else result=refused; fi
    rm "$tree/$2"
    if [ "$result" != "$1" ] || { [ "$result" = refused ] && ! grep -q "$2" "$tree/output"; }; then
        echo "$2 with '$3' was $result:"
        cat "$tree/output"
        exit 1
    fi
}

columns_117=$(printf '%0117d' 0)
for file in include/a.hpp include/a.ipp examples/a.cpp include/a.cuh; do
    expect accepted "$file" "// $columns_117"
    expect refused "$file" "// ${columns_117}0"
done
expect accepted include/a.hpp "// ${columns_117/00/±µ}"
expect accepted tests/a.cpp "// ${columns_117}0"
expect refused include/a.hpp "const char* text = \"${columns_117}\";"
for folder in include examples tests; do
    expect refused "$folder/a.hpp" "int  a;"
done
