#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: tensorboard.sh WRITE_EVENTS PYTHON. A training writes event files, is cut short and resumes; TensorBoard then has
# to return every value that was written, and none that the resumption replaced.
set -euo pipefail
if [ ! -x "$2" ]; then
    echo "skipped: there is no TensorBoard in $2; tests/benchmarks/run setup puts it there"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" "$work/events" "$work/events.csv"
"$2" "$(dirname "${BASH_SOURCE[0]}")/check.py" "$work/events" "$work/events.csv"
