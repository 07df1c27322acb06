#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: links.sh SOURCE_DIR PAGE... . Each relative link of a page leads to a file, and to one of its headings where it
# names one; each header and each other file of ours that a page names in `code` exists.
set -euo pipefail
cd "$1"
shift
mistakes=0 checked=0
mistake() {
    printf '%s: %s\n' "$page" "$1"
    mistakes=$((mistakes + 1))
}

# The page without its code blocks and comments.
prose() {
    awk '/^```/ { code = !code; next } code { next } /^<!--/ { comment = 1 } !comment { print } /-->/ { comment = 0 }' "$1"
}

# The anchors of a page's headings, as the usual viewers of Markdown make them.
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
            mistake "the link to $target leads nowhere"
        elif [ "$target" != "${target#*#}" ]; then
            anchors "$file" | grep -qxF "${target#*#}" || mistake "$file has no heading for #${target#*#}"
        fi
    done < <(prose "$page" | grep -oE '\]\([^)]*\)' | sed 's/^](//; s/)$//')

    # `cupola/net/plan.hpp`, `net/plan.hpp`, `include/cupola/net/plan.hpp`, `examples/run`, `tests/docs/links.sh`.
    while IFS= read -r name; do
        checked=$((checked + 1))
        found=
        for base in . include include/cupola include/cupola/ops; do
            if [ -e "$base/$name" ]; then found=1; fi
        done
        [ -n "$found" ] || mistake "there is no file $name"
    done < <(prose "$page" | grep -oE '`<?[A-Za-z0-9_./-]+>?`' | tr -d '`<>' |
        grep -E '\.(hpp|cpp|md|sh|cmake|json)$|^\.?/?(examples|tests|cmake|docs|include|\.ci)/' | grep -v '^[a-z]*-config\.cmake$')
done
[ "$checked" -gt 0 ] || { echo "no link was found"; exit 1; }
echo "$checked links and names checked, $mistakes mistakes"
[ "$mistakes" -eq 0 ]
