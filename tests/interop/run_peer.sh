#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: run_peer.sh MODULE,... PYTHON SCRIPT ARGUMENTS... . Runs the script, or ends with 77 if there is no such Python, or if it has not
# been set up with these modules. A module that is there and cannot be imported is an error.
set -euo pipefail
modules=$1
shift
skip() {
    echo "skipped: $1; tests/benchmarks/run setup installs it"
    exit 77
}
if ! command -v "$1" >/dev/null; then skip "$1 is missing"; fi
missing=$("$1" - "$modules" <<'END'
import importlib
import sys

for module in ["numpy", *sys.argv[1].split(",")]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        print("\nmissing:", module)
        break
END
) || {
    echo "error: $1 cannot import what it has been set up with: ${modules//,/, }"
    exit 1
}
case $missing in *$'\nmissing: '*) skip "$1 lacks ${missing##*$'\nmissing: '}" ;; esac
exec "$@"
