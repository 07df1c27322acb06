# SPDX-License-Identifier: Apache-2.0
#
# Functions for the scripts in this folder.
set -euo pipefail
golden_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
golden_root=$(cd "$golden_folder/../.." && pwd)

# golden_build FOLDER TREE ARGUMENTS...: builds golden_bits in FOLDER for the headers of TREE; the arguments are passed to cmake.
golden_build() {
    local folder=$1 tree=$2
    shift 2
    mkdir -p "$folder"
    if ! { cmake -S "$golden_folder/other_tree" -B "$folder" -G Ninja -DCUPOLA_GOLDEN_TREE="$tree" "$@" &&
        cmake --build "$folder"; } >"$folder/log" 2>&1; then
        tail -n 60 "$folder/log"
        echo "golden_bits could not be built for $tree"
        exit 1
    fi
}

# golden_text TREE COMPILER FLAGS...: prints what the compiler reads of TREE for golden_bits and for the library that it may link to, without
# comments, and where its flags come from. The headers of TREE are before those that FLAGS name.
golden_text() (
    cd "$1" || exit
    cat CMakeLists.txt cmake/*.cmake tests/golden_bits/program.cmake &&
        cat tests/golden_bits/*.cpp | "$2" -I include -I tests/golden_bits "${@:3}" -E -P -x c++ - &&
        "$2" -I include "${@:3}" -DCUPOLA_SEPARATE_COMPILATION -E -P -x c++ - <<<'#include <cupola/src.hpp>'
)

# golden_base ROOT: prints the commit to compare the checkout in ROOT with, or fails and prints why there is none.
golden_base() {
    local root=$1 head branch base
    if ! [ "$(git -C "$root" rev-parse --show-prefix 2>/dev/null || echo outside)" = "" ]; then
        echo "$root is not a checkout of git"
        return 1
    fi
    if [ -n "${CUPOLA_BASE:-}" ]; then
        git -C "$root" rev-parse --verify --quiet "$CUPOLA_BASE^{commit}" && return
        echo "the history of this checkout does not hold commit $CUPOLA_BASE"
        return 1
    fi
    head=$(git -C "$root" rev-parse HEAD)
    for branch in main origin/main; do
        base=$(git -C "$root" merge-base HEAD "$branch" 2>/dev/null) || continue
        if [ "$base" != "$head" ]; then
            echo "$base"
            return
        fi
    done
    git -C "$root" rev-parse --verify --quiet HEAD^ && return
    echo "the history of this checkout does not hold the commit before $head"
    return 1
}

# golden_changed BEFORE NOW: prints the cases that have other lines in the table NOW than in the table BEFORE, on any machine, or none any
# more: their bits have changed on purpose. A machine that BEFORE lacks changes nothing.
golden_changed() {
    awk 'FNR == 1 { tables++ }
        $1 == "key" { key = $0 }
        /^#|^$|^key/ { next }
        tables == 1 { before[key, $1] = $0; name[key, $1] = $1; next }
        { now[key, $1] = $0 }
        END { for (at in before) if (now[at] != before[at]) print name[at] }' "$1" "$2" | sort -u
}

# golden_difference BEFORE NOW [CHANGED]: prints the lines that differ of the key and of the cases that both have, but for those that the
# file CHANGED names; fails if there are any, or no such case.
golden_difference() {
    awk 'FILENAME == ARGV[1] { changed[$1]; next }
        FILENAME == ARGV[2] { before[$1] = $0; next }
        !($1 in before) { next }
        $1 != "key" { cases++ }
        !($1 in changed) && $0 != before[$1] { print "< " before[$1] "\n> " $0; differ = 1 }
        END { if (!cases) print "no case is in both"; exit differ || !cases }' "${3:-/dev/null}" "$1" "$2"
}

skip() {
    echo "skipped: $*"
    exit 77
}
