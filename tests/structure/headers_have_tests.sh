#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: headers_have_tests.sh SOURCE_DIR. Fails with the name of each public header (include/cupola/, without the internal folders) that has no test.
# A header has one if there is
#   - the test that mirrors it: tests/train/fit_test.cpp for train/fit.hpp; and tests/ops/pooling_test.cpp, whose cases run on each
#     device, for ops/pooling.hpp and the pooling.hpp of each device's folder in ops/, or
#   - a file in tests/ with a line that names it, "// Covers: cupola/train/run.hpp, cupola/train/progress.hpp" ("#" in a script).
# A line that names a header which does not exist is an error too.
set -euo pipefail
cd "$1"

errors=0 checked=0
error() {
    echo "$*"
    errors=$((errors + 1))
}

declare -A covered=()
while IFS=: read -r file _ list; do
    for header in ${list//,/ }; do
        [ -f "include/$header" ] || error "$file says that it covers $header, which does not exist"
        covered[$header]=1
    done
done < <(grep -rE --include='*.cpp' --include='*.cu' --include='*.hpp' --include='*.sh' '^(//|#) Covers: ' tests || true)

while IFS= read -r header; do
    checked=$((checked + 1))
    path=${header#include/cupola/}
    path=${path%.hpp}
    [ ! -f "tests/${path}_test.cpp" ] || continue
    if [[ $path =~ ^ops/[a-z]+/([a-z0-9_]+)$ ]] && [ -f "tests/ops/${BASH_REMATCH[1]}_test.cpp" ]; then continue; fi
    [ -n "${covered[${header#include/}]:-}" ] ||
        error "$header has no tests/${path}_test.cpp, and no test has a line 'Covers: ${header#include/}'"
done < <(find include/cupola -name '*.hpp' -not -path '*/impl/*' -not -path '*/parallel/*/*' -not -path '*/processes/*/*' | sort)

[ "$checked" -gt 0 ] || error "no header was found in $PWD/include/cupola"
echo "$checked headers checked, $errors errors"
[ "$errors" -eq 0 ]
