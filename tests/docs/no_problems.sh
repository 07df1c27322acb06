#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: no_problems.sh FILE. Fails and prints the file unless it exists and is empty.
set -euo pipefail
cat "$1"
[ ! -s "$1" ]
