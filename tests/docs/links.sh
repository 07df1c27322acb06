#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: links.sh SOURCE_DIR [PAGE...]. Checks that each relative link of a page leads to a file and to an existing heading, and that each
# header and each other file of the project that a page names in `code` exists. Without a PAGE it checks README.md and all pages in docs/
# and its folders, and also that each page that a comment in the source names exists.
set -euo pipefail
cd "$1"
shift
errors=0 checked=0
error() {
    printf '%s: %s\n' "$page" "$1"
    errors=$((errors + 1))
}
whole=
if [ $# -eq 0 ]; then
    whole=1
    mapfile -t pages < <(find docs -name '*.md' | sort)
    set -- README.md "${pages[@]}"
fi

# The page without its code blocks and comments.
prose() {
    awk '/^```/ { code = !code; next } code { next } /^<!--/ { comment = 1 } !comment { print } /-->/ { comment = 0 }' "$1"
}

# The anchors of the headings of a page, as common Markdown viewers make them.
anchors() {
    prose "$1" | sed -n 's/^##* *//p' | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

for page in "$@"; do
    here=$(dirname "$page")
    while IFS= read -r target; do
        checked=$((checked + 1))
        case $target in
            http://* | https://* | mailto:*) continue ;;
        esac
        file=${target%%#*}
        if [ -z "$file" ]; then file=$page; else file=$here/$file; fi
        if [ ! -e "$file" ]; then
            error "the link to $target leads nowhere"
        elif [ "$target" != "${target#*#}" ]; then
            anchors "$file" | grep -qxF "${target#*#}" || error "$file has no heading for #${target#*#}"
        fi
    done < <(prose "$page" | grep -oE '\]\([^)]*\)' | sed 's/^](//; s/)$//')

    # `cupola/net/plan.hpp`, `net/plan.hpp`, `include/cupola/net/plan.hpp`, `examples/run`, `tests/docs/links.sh`.
    while IFS= read -r name; do
        checked=$((checked + 1))
        found=
        for base in . "$here" include include/cupola include/cupola/ops; do
            if [ -e "$base/$name" ]; then found=1; fi
        done
        [ -n "$found" ] || error "there is no file $name"
    done < <(prose "$page" | grep -oE '`<?[A-Za-z0-9_./-]+>?`' | tr -d '`<>' |
        grep -E '[a-z0-9]\.(hpp|cpp|md|sh|cmake|json)$|^\.?/?(examples|tests|cmake|docs|include|\.ci)/' | grep -v '^[a-z]*-config\.cmake$')
done
if [ -n "$whole" ]; then
    while IFS=: read -r page name; do
        checked=$((checked + 1))
        [ -e "$name" ] || error "there is no page $name"
    done < <(grep -roE --include='*.hpp' --include='*.ipp' --include='*.cpp' --include='*.cu' --include='*.cuh' --include='*.sh' --include='*.py' \
        --include='*.cmake' --include='CMakeLists.txt' --include=run 'docs/[A-Za-z_/-]+\.md' include examples tests cmake CMakeLists.txt)
fi
[ "$checked" -gt 0 ] || { echo "no link was found"; exit 1; }
echo "$checked links and names checked, $errors errors"
[ "$errors" -eq 0 ]
