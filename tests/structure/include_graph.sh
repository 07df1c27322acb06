#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: include_graph.sh COMPILER FLAGS... . Fails if cupola.hpp or host.hpp reaches a header that costs every user's
# compilation something that only a few need, and names the way there.
set -euo pipefail

forbidden='/(iostream|random|filesystem|regex|archive\.h|jpeglib\.h|doctest\.h|cxxopts\.hpp)$|/nlohmann/|/CLI/|/protozero/'
list=$(printf '#include <cupola/cupola.hpp>\n#include <cupola/host.hpp>\n' | "$@" -fsyntax-only -H -x c++ - 2>&1)

grep -q '^\.* .*cupola/host\.hpp$' <<<"$list" || {
    echo "the list of includes could not be had:"
    head -n 20 <<<"$list"
    exit 1
}
# "-H" prints one dot a level: with each offender, print the includes above it.
awk -v forbidden="$forbidden" '
    /^\.+ / {
        depth = length($1); way[depth] = $2
        if ($2 ~ forbidden) {
            found = 1; text = $2
            for (level = depth - 1; level >= 1; --level) text = text "\n    from " way[level]
            print text
        }
    }
    END { exit found }' <<<"$list"
