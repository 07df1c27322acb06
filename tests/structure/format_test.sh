#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# format.sh accepts lines of 120 columns, and rejects longer ones, which clang-format leaves in comments and strings, and
# another layout.
. "$(dirname "$0")/test_of_script.sh"
mkdir "$tree/include" "$tree/examples" "$tree/tests"
cp "$(dirname "${BASH_SOURCE[0]}")/../../.clang-format" "$tree"

# expect accepted|refused FILE TEXT: checks a tree in which this file alone has this text.
expect() {
    printf '%s\n' "$3" >"$tree/$2"
    says "$1" "$2" "$2 with '$3'"
    rm "$tree/$2"
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
