#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# headers_have_tests.sh accepts each way in which a header can have a test, and rejects a header without one.
. "$(dirname "$0")/test_of_script.sh"

# expect accepted|refused HEADER TEST_FILE LINE: adds this header and this line in this file to a header that has a test.
expect() {
    rm -rf "$tree/include" "$tree/tests"
    mkdir -p "$tree/include/cupola/train" "$tree/tests/train" "$(dirname "$tree/include/cupola/$2")" "$(dirname "$tree/tests/$3")"
    touch "$tree/include/cupola/train/fit.hpp" "$tree/tests/train/fit_test.cpp" "$tree/include/cupola/$2"
    echo "$4" >>"$tree/tests/$3"
    says "$1" "${5:-$2}" "$2 beside $3 with '$4'"
}

expect accepted train/run.hpp train/run_test.cpp ''
expect accepted train/run.hpp train/fit_test.cpp '// Covers: cupola/train/run.hpp'
expect accepted train/run.hpp train/fit_test.cpp '// Covers: cupola/train/fit.hpp, cupola/train/run.hpp'
expect accepted compiled.hpp package/consume.sh '# Covers: cupola/compiled.hpp'
expect accepted ops/host/pooling.hpp ops/pooling_test.cpp ''
expect accepted ops/host/impl/loops.hpp train/fit_test.cpp ''
expect refused train/run.hpp train/fit_test.cpp ''
expect refused train/run.hpp data/run_test.cpp ''
expect refused train/run.hpp train/fit_test.cpp '// cupola/train/run.hpp'
expect refused train/run.hpp train/fit_test.cpp '// Covers: cupola/train/run_of.hpp'
expect refused train/run.hpp train/run_test.cpp '// Covers: cupola/train/gone.hpp' cupola/train/gone.hpp
expect refused optim/impl/pooling.hpp ops/pooling_test.cpp '// Covers: cupola/gone.hpp' cupola/gone.hpp
expect refused layers/cpu/pooling.hpp ops/pooling_test.cpp ''
rm -r "$tree/include/cupola"
mkdir "$tree/include/cupola"
if "$script" "$tree" >/dev/null 2>&1; then echo "a folder without headers was accepted"; exit 1; fi
