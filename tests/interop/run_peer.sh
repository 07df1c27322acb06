#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: run_peer.sh PYTHON SCRIPT ARGUMENTS... . Runs the script, or ends with 77 if that Python has not been set up.
set -euo pipefail
if ! "$1" -c 'import numpy, safetensors, torch' 2>/dev/null; then
    echo "skipped: $1 with torch and safetensors is missing; tests/benchmarks/run setup makes it"
    exit 77
fi
exec "$@"
