# SPDX-License-Identifier: Apache-2.0
#
# Usage: awk -f tree_links.awk NAMESPACE_PAGE... TREE.js... Writes TREE.js.new, in which a link to a member of a namespace leads to the page that
# describes it.

FILENAME ~ /\.html$/ {
    if (FNR == 1) {
        page = FILENAME
        sub(/.*\//, "", page)
    }
    if (match($0, /<a id="[0-9a-z]+"/)) page_of[substr($0, RSTART + 7, RLENGTH - 8)] = page
    next
}

{
    if (match($0, /"[^"]*_8hpp\.html#[0-9a-z]+"/)) {
        link = substr($0, RSTART + 1, RLENGTH - 2)
        anchor = link
        sub(/.*#/, "", anchor)
        if (anchor in page_of) $0 = substr($0, 1, RSTART) page_of[anchor] "#" anchor substr($0, RSTART + RLENGTH - 1)
    }
    print > (FILENAME ".new")
}
