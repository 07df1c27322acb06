#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: floors.sh INCLUDE_DIR. Fails with one line for each header that includes from a floor above its own, from
# another folder's internal part, or from a folder that has no floor; and for each include that is not written <cupola/...>.
set -euo pipefail
cd "$1/cupola"

declare -A floor=(
    [core]=0 [device]=1 [tensor]=2 [ops]=3 [layers]=4 [data]=3 [net]=5 [loss]=6 [optim]=6 [models]=6 [parallel]=7 [io]=8 [metrics]=8 [train]=9
    [processes]=10)
errors=0
error() {
    echo "$*"
    errors=$((errors + 1))
}

checked=0
while IFS= read -r line; do
    header=${line%%:*}
    included=${line#*<cupola/}
    included=${included%%>*}
    folder=${header%%/*}
    checked=$((checked + 1))
    # Only a header above all floors may include another one from there.
    if [ "$included" = "${included#*/}" ]; then
        if [ "$folder" = "$header" ]; then continue; fi
        error "$header includes $included, which stands above all floors"
        continue
    fi
    target=${included%%/*}
    if [ -z "${floor[$target]:-}" ]; then
        error "$header includes $included, and the folder $target has no floor in $0"
    elif [ "$folder" != "$header" ] && [ -z "${floor[$folder]:-}" ]; then
        error "$header lies in a folder that has no floor in $0"
    elif [ "$folder" != "$header" ] && [ "${floor[$target]}" -gt "${floor[$folder]}" ]; then
        error "$header (floor ${floor[$folder]}) includes $included (floor ${floor[$target]})"
    fi
    # Only the headers of the same folder may include from its impl/. The folders in parallel/ that compute, and those in processes/, are
    # internal too; a training in several processes is built from the former.
    owner= others=
    case $included in
        */impl/*) owner=${included%%/impl/*} ;;
        parallel/replicas/* | parallel/step/* | parallel/agreement/*) owner=parallel others=processes ;;
        processes/*/*) owner=processes ;;
    esac
    if [ -n "$owner" ] && [ "$folder" != "$header" ]; then
        case $header in "$owner"/* | "${others:-$owner}"/*) ;; *) error "$header includes $included, an internal part of $owner/" ;; esac
    fi
done < <(grep -rn --include='*.[hi]pp' '^ *# *include *<cupola/' . | sed 's|^\./||')

while IFS= read -r line; do
    error "${line#./}: includes with quotes; headers are included as <cupola/...>"
done < <(grep -rn --include='*.[hi]pp' '^ *# *include *"' . || true)

[ "$checked" -gt 0 ] || error "no include was found in $PWD"
echo "$checked includes checked, $errors errors"
[ "$errors" -eq 0 ]
