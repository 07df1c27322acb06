#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: check.sh CASE.cpp COMPILER FLAGS... . A case holds a mistake under `#ifdef MISTAKE`. It passes if the file
# does not compile with it (that it compiles without is for twins.sh), and the compiler then says what the case expects (expectations.sh).
set -euo pipefail
export LC_ALL=C
source "$(dirname "${BASH_SOURCE[0]}")/expectations.sh"

case_file=$1
shift
if output=$("$@" -std=c++20 -fsyntax-only -DMISTAKE "$case_file" 2>&1); then echo "the mistake compiles"; exit 1; fi
meets_expectations "$case_file" "$1" "$output"
