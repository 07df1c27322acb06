#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: split.sh FOLDER FILE... . Writes each case of the files, which begins with `// case: NAME`, to FOLDER/NAME.cpp.
set -euo pipefail
rm -rf "$1"
mkdir -p "$1"
awk -v folder="$1" '
    FNR == 1 { out = "" }
    /^\/\/ case: / {
        close(out)
        out = folder "/" $3 ".cpp"
        if (++count[out] > 1) { print FILENAME ": two cases are named " $3; exit 1 }
        print "using namespace cupola;" >out
    }
    out != "" { print >out }' "${@:2}"
