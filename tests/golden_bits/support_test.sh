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
