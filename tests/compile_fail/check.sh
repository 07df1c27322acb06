#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: check.sh CASE.cpp COMPILER FLAGS... . A case holds an error under `#ifdef WITH_ERROR`. It passes if the file
# does not compile with it (that it compiles without is for twins.sh), and the compiler then reports what the case expects (expectations.sh).
set -euo pipefail
export LC_ALL=C
source "$(dirname "${BASH_SOURCE[0]}")/expectations.sh"

case_file=$1
shift
if output=$("$@" -std=c++20 -fsyntax-only -DWITH_ERROR "$case_file" 2>&1); then echo "the case compiles with its error"; exit 1; fi
meets_expectations "$case_file" "$1" "$output"
