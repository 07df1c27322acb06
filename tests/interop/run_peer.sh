#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: run_peer.sh MODULE,... PYTHON SCRIPT ARGUMENTS... . Runs the script, or ends with 77 if that Python has not been set up with these modules.
set -euo pipefail
modules=$1
shift
if ! "$1" -c "import numpy, $modules" 2>/dev/null; then
    echo "skipped: $1 with ${modules//,/ and } is missing; tests/benchmarks/run setup makes it"
    exit 77
fi
exec "$@"
