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

skip() {
    echo "skipped: $*"
    exit 77
}
