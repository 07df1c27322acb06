#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: tensorboard.sh WRITE_EVENTS PYTHON. A training writes event files, is cut short and resumes; TensorBoard then has
# to return every value that was written, and none that the resumption replaced; and with playwright and a Chromium
# (CHROMIUM names one that is not on the path as chromium) its pages have to draw them.
set -euo pipefail
if [ ! -x "$2" ]; then
    echo "skipped: there is no TensorBoard in $2; tests/benchmarks/run setup puts it there"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" "$work/events" "$work/events.csv"
here=$(dirname "${BASH_SOURCE[0]}")
"$2" "$here/check.py" "$work/events" "$work/events.csv"
if "$2" -c 'import playwright' 2>/dev/null && command -v "${CHROMIUM:-chromium}" >/dev/null; then
    "$2" "$here/screenshot.py" "$work/events" "$work/pictures"
else
    echo "not tested, for playwright or chromium is missing: TensorBoard's pages in a browser"
fi
