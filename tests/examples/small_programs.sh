#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: small_programs.sh PROGRAM SOURCE. The two small examples learn what they are given, and are as short as the README
# says: at most 40 lines of code, and the averaging policy of one's own too.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
source_file=$2

trains
first=$(losses | head -n 1 | cut -d ' ' -f 2)
last=$(losses | tail -n 1 | cut -d ' ' -f 2)
[ "$(losses | wc -l)" = 4 ] || fail "not 4 log lines"
awk -v first="$first" -v last="$last" 'BEGIN { exit !(last < first / 5 && last < 0.2) }' || fail "it does not learn: $first to $last"
if [ "${program##*/}" = minimal ]; then
    accuracy=$(sed -nE 's/^accuracy = ([01]\.[0-9]{3})$/\1/p' "$work/output")
    awk -v accuracy="${accuracy:-0}" 'BEGIN { exit !(accuracy > 0.95) }' || fail "accuracy $accuracy"
fi

status=0
"$program" >/dev/full 2>"$work/errors" || status=$?
[ "$status" = 1 ] && grep -q 'could not be written: No space left on device$' "$work/errors" || fail "a full standard output: exit status $status"

lines=$(grep -cEv '^ *(//.*)?$' "$source_file")
[ "$lines" -le 40 ] || fail "$source_file has $lines lines of code"
echo "learns; $lines lines of code"
