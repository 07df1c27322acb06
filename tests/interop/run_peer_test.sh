#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: run_peer_test.sh: run_peer.sh runs a script, skips it by the name of what is missing, and fails where a module is broken.
set -euo pipefail
run=$(cd "$(dirname "$0")" && pwd)/run_peer.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1
python=$(command -v python3)
touch "$work/numpy.py"
echo 'print("loaded")' >"$work/whole.py"
echo 'import absent_part' >"$work/without_part.py"
echo 'raise ImportError("libwhole.so: no such file")' >"$work/broken.py"
echo 'import sys; print("ran", *sys.argv[1:])' >"$work/script"
errors=0
# expect STATUS TEXT MODULES PYTHON
expect() {
    local status=0
    said=$("$run" "$3" "$4" "$work/script" one two 2>&1) || status=$?
    if [ $status -eq "$1" ] && [[ $said == *"$2"* ]]; then return; fi
    echo "error: with $3 and $4, run_peer.sh ends with $status, not $1 with '$2': $said"
    errors=1
}
expect 0 "ran one two" whole "$python"
expect 77 "skipped: $python lacks absent;" whole,absent "$python"
expect 77 "skipped: $work/python is missing;" whole "$work/python"
expect 1 "ImportError: libwhole.so: no such file" whole,broken "$python"
expect 1 "No module named 'absent_part'" without_part "$python"
rm "$work/numpy.py"
if ! (cd / && "$python" -c 'import numpy' 2>/dev/null); then expect 77 "lacks numpy;" whole "$python"; fi
[ $errors -eq 0 ] || exit 1
echo "all checks passed"
