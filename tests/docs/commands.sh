#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: commands.sh SOURCE_DIR CIFAR10_TRAIN FOLDER. Each command in the sh blocks of the documentation (FOLDER/*.commands)
# has to exist: the script, its arguments, each option of the program that a script passes them to, each preset and
# option of CMake. A command of another kind has no rule here and fails: its block says `<!-- check: runs -->` instead.
set -euo pipefail
source_dir=$1 program=$2 folder=$3
cd "$source_dir"
help=$("$program" --help)
presets=$(cmake --list-presets=all)
mistakes=0 checked=0
mistake() {
    printf '%s\n    in: %s\n' "$1" "$command"
    mistakes=$((mistakes + 1))
}

# Options that are the program's own, with a value that it takes.
check_program() {
    local word
    for word in "$@"; do
        case $word in
            --*) grep -qE "(^|[ ,])$word( |,|=|$)" <<<"$help" || mistake "cifar10_train has no option $word" ;;
        esac
    done
}

check_cmake() {
    local word previous=
    for word in "$@"; do
        case $previous in --preset) grep -qF "\"$word\"" <<<"$presets" || mistake "there is no preset $word" ;; esac
        case $word in
            -DCUPOLA_*) word=${word#-D} && grep -qE "option\(${word%%=*} " CMakeLists.txt || mistake "there is no option ${word%%=*}" ;;
        esac
        previous=$word
    done
}

while IFS= read -r command; do
    command=${command%%#*}
    read -ra words <<<"$command"
    [ ${#words[@]} -gt 0 ] || continue
    checked=$((checked + 1))
    case ${words[0]} in
        ./*) [ -x "${words[0]}" ] || mistake "${words[0]} is no program of the repository" ;;&
        ./examples/run) check_program "${words[@]:1}" ;;
        ./tests/run) ;;  # what follows is ctest's
        ./tests/benchmarks/run)
            [ -z "${words[1]:-}" ] || grep -qE "^#   tests/benchmarks/run ${words[1]}( |$)" tests/benchmarks/run ||
                mistake "tests/benchmarks/run has no part ${words[1]}" ;;
        cmake) check_cmake "${words[@]:1}" ;;
        *) mistake "no rule for ${words[0]}" ;;
    esac
done < <(cat "$folder"/*.commands)
[ "$checked" -gt 0 ] || { echo "no command was found in $folder"; exit 1; }
echo "$checked commands checked, $mistakes mistakes"
[ "$mistakes" -eq 0 ]
