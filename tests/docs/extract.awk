# SPDX-License-Identifier: Apache-2.0
#
# Takes the code blocks out of one page of the documentation, as the comment before each says what is to become of it.
#
#   awk -v page=README -v file=README.md -v root=SOURCE_DIR -v out=FOLDER -f extract.awk README.md
#
# Comments, each on the line before its block:
#   <!-- check: file -->        declarations, at namespace scope; compiled
#   <!-- check: function -->    statements, in a function; compiled
#   <!-- check: run -->         the same, and the function is called
#   <!-- check: refused -->     it must not compile, and the compiler must say the text block that comes next
#   <!-- check: lines of F -->  the block is a run of lines of the file F (`file, lines of F`: and is compiled as well)
#   <!-- check: in order -->    (sh) all such blocks of install.md are run in their order by tests/package/readme.sh
#   <!-- check: runs -->        (python) by the peers' Python, where it was set up
# A cpp block with a main function is a program and needs no comment; nor does a sh block whose commands commands.sh
# knows. Code that the reader need not see stands in a comment of several lines, `<!-- before` or `<!-- after`, and is
# put before or after the block in the same scope.
#
# FOLDER gets PAGE.cpp (the fragments, in their order), PAGE_LINE.program.cpp, PAGE_LINE.refused.cpp with its .txt,
# PAGE_LINE.ordered.sh, PAGE_LINE.runs.py and PAGE.commands. Prints one message and fails for a block that
# has no such comment, and for a comment without its block.

function fail(line, message) {
    print file ":" line ": " message
    failed = 1
    exit 1
}

# The lines of a source file, kept for comparison.
function lines_of(name,    line, all, path) {
    path = root "/" name
    all = "\n"
    while ((getline line < path) > 0) all = all line "\n"
    close(path)
    return all
}

# Splits includes, which belong at the top of a file, from the rest, whose line numbers stay.
function split_includes(code,    count, i, lines) {
    includes = ""
    rest = ""
    count = split(code, lines, "\n")
    for (i = 1; i < count; ++i) {
        if (lines[i] ~ /^#include/) {
            includes = includes lines[i] "\n"
            rest = rest "\n"
        } else {
            rest = rest lines[i] "\n"
        }
    }
}

function write_fragment() {
    if (fragment == "") return
    split_includes(before)
    top = top includes
    hidden = rest
    split_includes(fragment)
    top = top includes
    if (fragment_kind != "file") body = body "void snippet_" fragment_line "() {\n"
    body = body hidden "#line " fragment_line + 1 " \"" root "/" file "\"\n" rest after
    if (fragment_kind != "file") body = body "}\n"
    if (fragment_kind == "run") {
        body = body "const docs::Registration run_" fragment_line "(\"" file ":" fragment_line "\", &snippet_" fragment_line ");\n"
    }
    fragment = before = after = ""
}

function finish_block(    name) {
    if (expected != "") {
        if (language != "text") fail(start, "the block after a refused one is a text block with what the compiler says")
        printf "%s", block > (out "/" expected ".txt")
        expected = ""
        return
    }
    name = page "_" start
    if (language == "cpp" && mark ~ /^(file, )?lines of /) {
        whole = mark
        sub(/.*lines of /, "", whole)
        if (index(lines_of(whole), "\n" block) == 0) fail(start, "this block is not a run of lines of " whole)
        mark = mark ~ /^file/ ? "file" : "checked"
    }
    if (language == "cpp" && mark == "checked") {
        # Compiled where it comes from.
    } else if (language == "cpp" && mark ~ /^(file|function|run)$/) {
        fragment = block
        fragment_kind = mark
        fragment_line = start
        ++fragments
    } else if (language == "cpp" && mark == "refused") {
        split_includes(before block)
        printf "%s#line %d \"%s\"\n%s", includes, start + 1, root "/" file, rest > (out "/" name ".refused.cpp")
        before = ""
        expected = name
        expected_line = start
    } else if (language == "cpp" && mark == "" && block ~ /(^|\n)int main\(/) {
        printf "#line %d \"%s\"\n%s", start + 1, root "/" file, block > (out "/" name ".program.cpp")
    } else if (language == "sh" && mark == "in order" && file == "docs/how-to/install.md") {
        printf "%s", block > (out "/" name ".ordered.sh")
    } else if (language == "python" && mark == "runs") {
        printf "%s", block > (out "/" name ".runs.py")
    } else if (language == "sh" && mark == "") {
        printf "%s", block > (out "/" page ".commands")
    } else if (language == "text" && mark == "") {
        # Output or a picture: for the eye.
    } else {
        fail(start, "no check is known for a block '" language "'" (mark == "" ? " without a comment" : " with the comment 'check: " mark "'"))
    }
    mark = ""
}

in_block && /^```$/ {
    in_block = 0
    finish_block()
    next
}
in_block {
    block = block $0 "\n"
    next
}
in_hidden && /^-->$/ {
    in_hidden = ""
    next
}
in_hidden == "before" {
    before = before $0 "\n"
    next
}
in_hidden == "after" {
    after = after $0 "\n"
    next
}
/^<!-- before$/ {
    write_fragment()
    in_hidden = "before"
    next
}
/^<!-- after$/ {
    if (fragment == "") fail(NR, "there is no fragment that this could come after")
    in_hidden = "after"
    next
}
/^<!-- check: .* -->$/ {
    if (mark != "") fail(NR, "this comment follows another that has no block")
    mark = substr($0, 13, length($0) - 16)
    next
}
/^```/ {
    # A fragment whose code in `after` is complete; its `before` belongs to it and not to this block.
    if (fragment != "") write_fragment()
    in_block = 1
    language = substr($0, 4)
    block = ""
    start = NR
    if (language == "") fail(NR, "this block does not name its language")
    next
}
/[^ ]/ && mark != "" { fail(NR, "the comment 'check: " mark "' is not on the line before a block") }

END {
    if (failed) exit 1
    if (in_block) fail(start, "this block does not end")
    if (in_hidden) fail(NR, "a comment '" in_hidden "' does not end")
    if (mark != "") fail(NR, "the comment 'check: " mark "' has no block")
    if (expected != "") fail(expected_line, "no text block says what the compiler says of this")
    write_fragment()
    if (before != "") fail(NR, "a comment 'before' has no block")
    if (fragments > 0) {
        printf "// The fragments of %s.\n%s#include \"snippets.hpp\"\n\nnamespace %s {\n\nnamespace {\n\nusing docs::expect;\n\n%s\n}\n\n}\n", file, top, "page_" page, body > (out "/" page ".cpp")
    }
}
