#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: split.sh FOLDER FILE... . Writes each case of the files to FOLDER/NAME.cpp:
#   // case: NAME               begins a case. Cases that follow each other without text between them share the text after the last one.
#   /* wrong */ STATEMENT       only with the error; `/* right */`: only in the twin
#   /* wrong NAME */ STATEMENT  only with the error of the case NAME; `/* NAME */`: everywhere but there
#   // fit: TYPES               a function that trains DataParallel<TYPES, Host>; `// step: TYPES`: one that makes a step;
#                               `// fit on DEVICE: TYPES` on another device, `// fit with CALLBACK: TYPES` with a callback
# A case that defines no `struct Net` and names it has a small one.
set -euo pipefail
rm -rf "$1"
mkdir -p "$1"
awk -v folder="$1" '
    BEGIN { program = "^// (fit|step)( on [A-Za-z]+| with [A-Za-z]+[{][}])?: " }
    function fail(reason) { print FILENAME ": " reason; failed = 1; exit 1 }
    # Writes the line `text` of the case `name`. A marked statement ends where its braces are closed and a line ends with ; or }.
    function write_line(name, text, out,    types, mark, device, callback) {
        if (match(text, program)) {
            types = substr(text, RLENGTH + 1)
            text = substr(text, 1, RLENGTH - 2)
            device = callback = ""
            if (match(text, / on .*/)) device = substr(text, RSTART + 4)
            if (match(text, / with .*/)) callback = ", " substr(text, RSTART + 6)
            if (text ~ /^\/\/ fit/) {
                print "void run(const InMemory& data) {" >out
                print "DataParallel<" types ", " (device == "" ? "Host" : device) "> training({.replicas = 2, .batch_size = 8});" >out
                print "InMemoryBatches batches(data, {.batch_size = 8, .replicas = 2});" >out
                text = "fit(training, batches, {.steps = 10}, LogEvery{5}" callback "); }"
            } else {
                print "void run(const BatchView& batch) {" >out
                print "DataParallel<" types ", Host> training({.batch_size = 8});" >out
                text = "training.step(std::span(&batch, 1)); }"
            }
        }
        if (!open && match(text, /^ *\/\* (wrong )?[a-z0-9_]+ \*\/ /)) {
            mark = substr(text, 1, RLENGTH)
            gsub(/^ *\/\* | \*\/ $/, "", mark)
            text = substr(text, RLENGTH + 1)
            open = mark
            if (mark == "wrong" || mark == "wrong " name) print "#ifdef WITH_ERROR" >out
            else if (mark == "right" || mark == name) print "#ifndef WITH_ERROR" >out
            else {
                open = mark ~ /^wrong / ? "left out" : "as it is"
                sub(/^wrong /, "", mark)
                if (!(mark in group)) fail("no case here is named " mark)
            }
        }
        if (open != "left out") print text >out
        if (open != "") {
            depth += gsub(/{/, "{", text) - gsub(/}/, "}", text)
            if (!depth && text ~ /[;}]$/) {
                if (open != "left out" && open != "as it is") print "#endif" >out
                open = ""
            }
        }
    }
    function write_cases(    name, out, i) {
        for (name in group) {
            out = folder "/" name ".cpp"
            printf "using namespace cupola;\n%s", group[name] >out
            if (all ~ /[^a-z]Net[^a-z]/ && all !~ /struct Net/) print "struct Net : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};" >out
            for (i = 1; i <= lines; i++) write_line(name, body[i], out)
            if (open != "") fail("a statement of " name " does not end")
            close(out)
        }
        delete group
        lines = 0
        all = current = ""
    }
    FNR == 1 { write_cases() }
    /^\/\/ case: / {
        if (lines) write_cases()
        current = $3
        if (count[current]++) fail("two cases are named " current)
    }
    current == "" { next }
    !lines && /^\/\/ / && $0 !~ program { group[current] = group[current] $0 "\n"; next }
    { body[++lines] = $0; all = all $0 "\n" }
    END { if (!failed) write_cases() }' "${@:2}"
