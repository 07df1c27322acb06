# SPDX-License-Identifier: Apache-2.0
#
# What Doxygen reads of a header, with the same number of lines: the comment at its head becomes the documentation of the file, and of the
# first type that it names and that has none of its own; in comments, characters that Markdown would take for markup are escaped; the inline
# namespace of the ABI and attributes are left out.

# Text of a comment. Indented text is code, in which nothing is escaped and backticks are left out; `code` between backticks is left as it is too.
function prose(text,    parts, count, i, result) {
    if (text ~ /^  /) {
        gsub(/`/, "", text)
        return "    " text
    }
    count = split(text, parts, "`")
    result = ""
    for (i = 1; i <= count; ++i) {
        if (i % 2 == 1) {
            gsub(/[<>#&%*]/, "\\\\&", parts[i])
            gsub(/ - /, " \\- ", parts[i])
        }
        result = result (i > 1 ? "`" : "") parts[i]
    }
    return result
}

# Where the declaration of line i begins: at its template and requires clauses.
function beginning(i) {
    while (i > 1 && lines[i - 1] ~ /^(template|requires|    requires|    *&& )/) --i
    return i
}

{ lines[NR] = $0 }

END {
    last_of_head = 0
    while (lines[last_of_head + 1] ~ /^\/\//) head = head lines[++last_of_head] " "
    described = 0
    for (i = last_of_head + 1; i <= NR && !described; ++i) {
        if (lines[i] !~ /^(struct|class) [A-Z][A-Za-z0-9]*(<.*>)?( final)?( :[^;]*)? \{/) continue
        split(lines[i], words, /[ :{<]/)
        first = beginning(i) - 1
        if (head ~ ("(^|[^A-Za-z])" words[2] "([^A-Za-z]|$)") && lines[first] == "") described = first
    }
    for (i = 1; i <= NR; ++i) {
        line = lines[i]
        if (i == 1) {
            line = "/// \\file"
        } else if (i <= last_of_head) {
            line = "///" prose(substr(line, 3))
        } else if (i == described) {
            line = "/// \\copydoc " name
        } else if (line ~ /^ *\/\/\/ /) {
            match(line, /^ *\/\/\//)
            line = substr(line, 1, RLENGTH) prose(substr(line, RLENGTH + 1))
        } else {
            gsub(/ inline namespace CUPOLA_ABI \{/, "", line)
            if (line ~ /^\}\}+  \/\/ namespace cupola::CUPOLA_ABI/) line = substr(line, 2)
            gsub(/\[\[[a-z_:, ]*\]\] ?/, "", line)
        }
        print line
    }
}

FNR == 1 {
    name = FILENAME
    sub(/.*\/include\//, "", name)
}
