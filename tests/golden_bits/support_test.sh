#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Which commit compare_with takes, and what it counts as a difference.
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
unset CUPOLA_BASE
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree

wants() {
    local text
    text=$("${@:2}") || true
    [ "$text" = "$1" ] || { echo "line ${BASH_LINENO[0]}: $text"; echo "instead of: $1"; exit 1; }
}
in_tree() { git -C "$tree" -c user.name=a -c user.email=a@b "$@"; }
commit() { in_tree commit -q --allow-empty -m "$1" && in_tree rev-parse HEAD; }

mkdir "$tree"
export GIT_CEILING_DIRECTORIES=$folder
wants "$tree is not a checkout of git" golden_base "$tree"
in_tree init -q -b main
first=$(commit first)
wants "the history of this checkout does not hold the commit before $first" golden_base "$tree"
second=$(commit second)
wants "$first" golden_base "$tree"
# A shallow clone has the one commit.
git clone -q --depth 1 "file://$tree" "$folder/shallow"
wants "the history of this checkout does not hold the commit before $second" golden_base "$folder/shallow"
# On a branch the merge base, however many commits it has, and whatever main has since.
in_tree checkout -q -b branch
third=$(commit third)
commit fourth >/dev/null
wants "$second" golden_base "$tree"
in_tree checkout -q main
commit fifth >/dev/null
in_tree checkout -q branch
wants "$second" golden_base "$tree"
# A clone of the branch knows main by the name of its origin.
git clone -q "file://$tree" "$folder/clone"
wants "$second" golden_base "$folder/clone"
in_tree branch -q -D main
wants "$third" golden_base "$tree"
CUPOLA_BASE=$first wants "$first" golden_base "$tree"
CUPOLA_BASE=0123456 wants "the history of this checkout does not hold commit 0123456" golden_base "$tree"
# The folder of a package inside another checkout.
mkdir "$tree/package"
wants "$tree/package is not a checkout of git" golden_base "$tree/package"

printf 'key isa\na 1 2\nb 3 4\n' >"$folder/before"
printf 'key isa\nb 3 4\nc 5 6\n' >"$folder/now"
golden_difference "$folder/before" "$folder/now"
printf 'key isa\nb 3 5\n' >"$folder/now"
wants $'< b 3 4\n> b 3 5' golden_difference "$folder/before" "$folder/now"
! golden_difference "$folder/before" "$folder/now" >"$folder/out" || exit 1
printf 'key isa\nc 5 6\n' >"$folder/now"
wants "no case is in both" golden_difference "$folder/before" "$folder/now"
! golden_difference "$folder/before" "$folder/now" >"$folder/out" || exit 1
# A case whose line has changed, or is gone, on one machine; but not one of a machine that is new.
printf '# table\n\nkey isa\na 1 2\nb 3 4\nc 5 6\n\nkey other\nd 7 8\n' >"$folder/old_table"
printf '# table\n\nkey isa\na 1 2\nb 3 5\n\nkey other\nd 7 8\n\nkey third\na 9 9\n' >"$folder/new_table"
golden_changed "$folder/old_table" "$folder/new_table" >"$folder/changed"
wants $'b\nc' cat "$folder/changed"
printf 'key isa\na 1 2\nb 3 5\n' >"$folder/now"
golden_difference "$folder/before" "$folder/now" "$folder/changed"
printf 'key isa\na 1 3\nb 3 5\n' >"$folder/now"
! golden_difference "$folder/before" "$folder/now" "$folder/changed" >"$folder/out" || exit 1
# All that both have may have changed.
printf 'b\n' >"$folder/changed"
printf 'key isa\nb 3 5\n' >"$folder/now"
golden_difference "$folder/before" "$folder/now" "$folder/changed"

# What the compiler reads of two trees: the same with other comments, though the flags name the headers of the first one.
for each in old new; do
    mkdir -p "$folder/$each"/{cmake,include/cupola,tests/golden_bits}
    touch "$folder/$each"/{CMakeLists.txt,cmake/flags.cmake,tests/golden_bits/program.cmake}
    printf '// %s\n#include <cupola/src.hpp>\n' $each >"$folder/$each/tests/golden_bits/main.cpp"
    printf '// %s\nint value = 1;\n' $each $each >"$folder/$each/include/cupola/src.hpp"
done
text_of() { golden_text "$folder/$1" g++ "-I$folder/old/include" >"$folder/text_of_$1"; }
differ() { text_of new && ! cmp -s "$folder/text_of_old" "$folder/text_of_new" || { echo "no difference by $1"; exit 1; }; }
text_of old
text_of new
cmp "$folder/text_of_old" "$folder/text_of_new"
sed -i 's/value = 1/value = 2/' "$folder/new/include/cupola/src.hpp"
differ "a header"
cp "$folder/old/include/cupola/src.hpp" "$folder/new/include/cupola/src.hpp"
echo 'add_compile_options(-O1)' >"$folder/new/cmake/flags.cmake"
differ "flags"
rm "$folder/new/tests/golden_bits/program.cmake"
! text_of new 2>/dev/null || { echo "a tree without this program has a text"; exit 1; }
