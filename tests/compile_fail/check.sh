#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: check.sh CASE.cpp COMPILER FLAGS... . A case has an error under `#ifdef WITH_ERROR`. It passes if the file does not compile with
# the error and the compiler reports what the case expects (expectations.sh). twins.sh checks that it compiles without the error.
set -euo pipefail
export LC_ALL=C
source "$(dirname "${BASH_SOURCE[0]}")/expectations.sh"

case_file=$1
shift
if output=$("$@" -std=c++20 -fsyntax-only -DWITH_ERROR "$case_file" 2>&1); then echo "the case compiles with its error"; exit 1; fi
meets_expectations "$case_file" "$1" "$output"
