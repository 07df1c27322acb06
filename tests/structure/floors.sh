#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: floors.sh INCLUDE_DIR. Fails with one line for each header that includes from a floor above its own, from
# another folder's internal part, or from a folder that has no floor; for each include that is not written <cupola/...>; and for
# each header that includes a header or a library of a component which its own component does not need (cmake/components.txt).
set -euo pipefail
components=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/cmake/components.txt
cd "$1/cupola"

declare -A floor=(
    [core]=0 [device]=1 [tensor]=2 [ops]=3 [layers]=4 [data]=3 [net]=5 [loss]=6 [optim]=6 [models]=6 [parallel]=7 [io]=8 [metrics]=8 [train]=9
    [processes]=10)
errors=0
error() {
    echo "$*"
    errors=$((errors + 1))
}

# Per pair of components "A B": A needs B, directly or not. Per path: the component that owns it. Per beginning of a library's headers: those
# whose library it is.
declare -A needs=(["core core"]=1) owner=() library=()
while read -r name field values; do
    case $field in
        needs)
            needs["$name $name"]=1
            for pair in "${!needs[@]}"; do [ "${pair% *}" != "$values" ] || needs["$name ${pair#* }"]=1; done
            ;;
        owns | defines) for path in $values; do owner[$path]=$name; done ;;
        libraries) for path in $values; do library[$path]+=" $name"; done ;;
        *) error "$components has a line '$name $field'" ;;
    esac
done < <(grep '^[a-z]' "$components")

# component_of HEADER: sets `component`.
component_of() {
    local path=$1
    component=${owner[$path]:-}
    while [ -z "$component" ]; do
        case ${path%/} in */*) path=${path%/} path=${path%/*}/ component=${owner[$path]:-} ;; *) component=core ;; esac
    done
}

checked=0
while IFS= read -r line; do
    header=${line%%:*}
    included=${line#*<cupola/}
    included=${included%%>*}
    folder=${header%%/*}
    checked=$((checked + 1))
    component_of "$included"
    of_included=$component
    component_of "$header"
    [ -n "${needs["$component $of_included"]:-}" ] ||
        error "$header (component $component) includes $included ($of_included), and $component does not need $of_included"
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
done < <(grep -rn --include='*.[hi]pp' --include='*.cuh' '^ *# *include *<cupola/' . | sed 's|^\./||')

beginnings=$(printf '|%s' "${!library[@]}")
while IFS= read -r line; do
    header=${line%%:*}
    included=${line#*<}
    included=${included%%>*}
    component_of "$header"
    needed=
    for path in "${!library[@]}"; do
        [[ $included == "$path"* ]] || continue
        for name in ${library[$path]}; do needed+=${needs["$component $name"]:-}; done
    done
    [ -n "$needed" ] || error "$header (component $component) includes $included, and $component has no such library"
done < <(grep -rnE --include='*.[hi]pp' --include='*.cuh' "^ *# *include *<(${beginnings#|})" . | sed 's|^\./||')

while IFS= read -r line; do
    error "${line#./}: includes with quotes; headers are included as <cupola/...>"
done < <(grep -rn --include='*.[hi]pp' --include='*.cuh' '^ *# *include *"' . || true)

[ "$checked" -gt 0 ] || error "no include was found in $PWD"
echo "$checked includes checked, $errors errors"
[ "$errors" -eq 0 ]
