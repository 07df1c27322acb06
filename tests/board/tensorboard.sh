#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: tensorboard.sh WRITE_EVENTS PYTHON values|pages. A training writes event files, is interrupted and resumes. TensorBoard then
# must return every value that was written and none that the resumed run replaced, or draw them on its pages in a Chromium (the
# environment variable CHROMIUM, or chromium on the path).
set -euo pipefail
if [ ! -x "$2" ]; then
    echo "skipped: there is no TensorBoard in $2; tests/benchmarks/run setup puts it there"
    exit 77
fi
if [ "$3" = pages ] && ! { "$2" -c 'import playwright' && command -v "${CHROMIUM:-chromium}"; } >/dev/null 2>&1; then
    echo "skipped: there is no chromium, or no playwright in $2, which tests/benchmarks/run setup puts there"
    exit 77
fi
here=$(dirname "${BASH_SOURCE[0]}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" "$work/events" "$work/events.csv"
case $3 in
    values) "$2" "$here/check.py" "$work/events" "$work/events.csv" ;;
    pages) "$2" "$here/screenshot.py" "$work/events" "$work/pictures" ;;
esac
