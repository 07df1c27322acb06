#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: reference.sh SOURCE_DIR FOLDER VERSION DESCRIPTION. Builds the reference of the headers and checks that there are no warnings, that
# its links exist, and that it has the pages and texts that a reader looks for. Exits with 77 if Doxygen is not installed.
set -euo pipefail
source_dir=$1 folder=$2
"$source_dir/cmake/reference/build" "$@"
python3 "$source_dir/tests/docs/site_links.py" "$folder/html"
# page FILE TEXT: checks that the page exists and contains the text.
page() {
    grep -qF "$2" "$folder/html/$1" || { echo "$1 does not have: $2"; exit 1; }
}
page classcupola_1_1Predictor.html 'any number of threads at once'    # the head of its header
page structcupola_1_1HostOptions.html 'OpenMP threads of this device' # the comment of a member
# A comment with an error is detected, in a tree that has nothing else.
mkdir -p "$folder/include/cupola/core"
cp -r "$source_dir/cmake" "$folder"
echo '# Reference' >"$folder/cmake/reference/main_page.md.in"
small() { # small COMMENT: builds the reference of a header with the comment
    printf '#pragma once\n\n/// %s\nnamespace cupola {\ninline int wrong() { return 0; }\n}\n' "$1" >"$folder/include/cupola/core/wrong.hpp"
    "$folder/cmake/reference/build" "$folder" "$folder/wrong" 0 none >"$folder/wrong.log" 2>&1
}
small 'right' || true  # there are no pages of classes, of which the build expects some
[ ! -s "$folder/wrong/warnings.log" ] || { cat "$folder/wrong/warnings.log"; exit 1; }
if small '\nosuchcommand'; then
    echo "a warning of Doxygen is no failure"
    exit 1
fi
# It prints the warnings where it fails for them.
grep -q "wrong.hpp:3.*nosuchcommand" "$folder/wrong.log" || { cat "$folder/wrong.log"; exit 1; }
