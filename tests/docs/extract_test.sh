#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# extract.awk accepts each kind of block and rejects blocks that would not be checked; links.sh and refused.sh find errors.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect RESULT PAGE: the page is extracted, or refused with an error.
expect() {
    rm -rf "$folder/out"
    mkdir "$folder/out"
    printf '%s\n' "$2" | tr '~' '`' >"$folder/page.md"
    if awk -v page=page -v file=page.md -v root="$folder" -v out="$folder/out" -f "$here/extract.awk" "$folder/page.md" \
        >"$folder/output" 2>&1; then result=accepted; else result=refused; fi
    if [ "$result" != "$1" ]; then
        printf 'this page was %s:\n%s\n' "$result" "$2"
        cat "$folder/output"
        exit 1
    fi
}
made() { [ -e "$folder/out/$1" ] || { echo "$1 was not made of the page"; ls "$folder/out"; exit 1; }; }

printf 'int a;\nint b;\nint c;\n' >"$folder/source.cpp"
expect accepted $'~~~cpp\nint main() {}\n~~~' && made page_1.program.cpp
expect accepted $'<!-- check: file -->\n~~~cpp\nint a;\n~~~' && made page.cpp
expect accepted $'<!-- check: refused -->\n~~~cpp\nint a = "";\n~~~\nwhich says\n~~~text\ninvalid\n~~~' && made page_2.refused.cpp && made page_2.txt
expect accepted $'<!-- check: lines of source.cpp -->\n~~~cpp\nint b;\nint c;\n~~~'
expect accepted $'<!-- check: file, lines of source.cpp -->\n~~~cpp\nint b;\n~~~' && made page.cpp
expect accepted $'<!-- check: runs -->\n~~~python\nprint()\n~~~' && made page_2.runs.py
expect refused $'~~~python\nprint()\n~~~'
expect accepted $'~~~sh\n./run\n~~~' && made page.commands
expect refused $'<!-- check: in order -->\n~~~sh\ntrue\n~~~'  # nothing runs those of another page
expect refused $'~~~cpp\nint a;\n~~~'
expect refused $'~~~\nint a;\n~~~'
expect refused $'~~~cmake\nadd()\n~~~'
expect refused $'<!-- check: files -->\n~~~cpp\nint a;\n~~~'
expect refused $'<!-- check: file -->\ntext\n~~~cpp\nint main() {}\n~~~'
expect refused $'<!-- check: file -->'
expect refused $'<!-- check: lines of source.cpp -->\n~~~cpp\nint a;\nint c;\n~~~'
expect refused $'<!-- check: file, lines of source.cpp -->\n~~~cpp\nint d;\n~~~'
expect refused $'<!-- check: lines of none.cpp -->\n~~~cpp\nint a;\n~~~'
expect refused $'<!-- check: refused -->\n~~~cpp\nint a = "";\n~~~'
expect refused $'~~~cpp\nint main() {}'
expect refused $'<!-- before\nint a;\n-->'

# The hidden code and the includes are at the right places: otherwise this would not compile and run.
expect accepted $'<!-- before\nconst int hidden = 1;\n-->\n<!-- check: file -->\n~~~cpp\n#include <vector>\nstd::vector<int> shown{hidden};\n~~~
<!-- check: run -->\n~~~cpp\nshown.push_back(2);\n~~~\n<!-- after\nexpect(shown.size() == 2, "two");\nexpect(shown.size() == 3, "three");\n-->'
c++ -std=c++20 -I "$here" "$here/main.cpp" "$folder/out/page.cpp" -o "$folder/program"
if "$folder/program" >"$folder/output"; then echo "a failed check is no failure"; exit 1; fi
grep -q 'page.md:10: expected: three' "$folder/output" || { cat "$folder/output"; exit 1; }

# refused.sh: a refused block that compiles fails, and so does a message that is not printed.
refused() {
    printf '%s\n' "$2" >"$folder/block.cpp"
    printf '%s\n' "$3" >"$folder/block.txt"
    if "$here/refused.sh" "$folder/block.cpp" "$folder/block.txt" c++ -std=c++20 >"$folder/output" 2>&1; then result=passes; else result=fails; fi
    [ "$result" = "$1" ] || { printf '%s, though it should not: %s, %s\n' "$result" "$2" "$3"; cat "$folder/output"; exit 1; }
}
refused passes 'static_assert(sizeof(int) == 1, "an int is no byte at all");' 'error: ... an int ... byte at'
refused fails 'static_assert(sizeof(int) == 1, "an int is no byte at all");' 'assertion failed ... error:'
refused fails 'static_assert(sizeof(int) == 1, "an int is no byte at all");' ''
refused fails 'int a;' 'int'

# links.sh: files, headings and names of headers.
links() {
    printf '%s\n' "$2" | tr '~' '`' >"$folder/page.md"
    if "$here/links.sh" "$folder" page.md >"$folder/output" 2>&1; then result=passes; else result=fails; fi
    [ "$result" = "$1" ] || { printf '%s, though it should not: %s\n' "$result" "$2"; cat "$folder/output"; exit 1; }
}
links passes $'# One: two\n[a](source.cpp) [b](#one-two) [c](page.md#one-two)'
links fails $'# One\n[a](none.cpp)'
links fails $'# One\n[a](#two)'
links passes $'see ~source.cpp~'
links fails $'see ~net/none.hpp~'
links fails $'see ~examples/none~'
links fails 'nothing'
