#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: commands.sh SOURCE_DIR FOLDER PROGRAM... . Checks that each command in the sh blocks of the documentation (FOLDER/*.commands)
# exists: the script, its arguments, each option of the program that is called or to which a script passes them, and each preset, option
# and target of CMake. PROGRAMs are the built examples. A command of another kind is an error: its block needs a rule here.
set -euo pipefail
source_dir=$1 folder=$2
shift 2
programs=("$@")
cd "$source_dir"
presets=$(cmake --list-presets=all)
errors=0 checked=0
error() {
    printf '%s\n    in: %s\n' "$1" "$command"
    errors=$((errors + 1))
}

# The built example of this name.
program_of() {
    local program
    for program in "${programs[@]}"; do
        if [ "${program##*/}" = "$1" ]; then
            echo "$program"
            return
        fi
    done
    return 1
}

# check_program NAME ARGUMENTS...: checks that the program has the options.
check_program() {
    local name=$1 program help word
    shift
    program=$(program_of "$name") || { error "there is no example $name"; return; }
    for word in "$@"; do
        case $word in
            --*)
                help=${help:-$("$program" --help)}
                grep -qE "(^|[ ,])$word( |,|=|$)" <<<"$help" || error "$name has no option $word" ;;
        esac
    done
}

check_cmake() {
    local word previous=
    for word in "$@"; do
        case $previous in
            --preset) grep -qF "\"$word\"" <<<"$presets" || error "there is no preset $word" ;;
            --target) [ "$word" = docs_reference ] || program_of "$word" >/dev/null || error "there is no example $word" ;;
        esac
        case $word in
            -DCUPOLA_*) word=${word#-D} && grep -qE "option\(${word%%=*} " CMakeLists.txt || error "there is no option ${word%%=*}" ;;
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
        mpirun | torchrun)
            # Its own options, with their values, come before the program.
            words=("${words[@]:1}")
            while [ ${#words[@]} -gt 0 ] && [[ ${words[0]} != ./* ]]; do words=("${words[@]:1}"); done
            [[ ${words[0]:-} == ./build/release/examples/* ]] || { error "${words[0]:-nothing} is no example"; continue; }
            check_program "${words[0]##*/}" "${words[@]:1}" && continue ;;
        ./build/release/examples/*) check_program "${words[0]##*/}" "${words[@]:1}" && continue ;;
        ./*) [ -x "${words[0]}" ] || error "${words[0]} is no program of the repository" ;;&
        ./examples/run) check_program cifar10_train "${words[@]:1}" ;;
        ./tests/run) ;;  # the other arguments are for ctest
        ./tests/structure/* | ./tests/docs/*) ;;  # programs of the repository
        ./tests/benchmarks/run)
            [ -z "${words[1]:-}" ] || grep -qE "^#   tests/benchmarks/run ${words[1]}( |$)" tests/benchmarks/run ||
                error "tests/benchmarks/run has no part ${words[1]}" ;;
        tests/gpu/pack) [ -x tests/gpu/pack ] || error "tests/gpu/pack is no program of the repository" ;;
        tests/gpu/run)
            [ -z "${words[2]:-}" ] || [[ ${words[2]} == --* ]] || "${words[0]}" --help | grep -qE "[{,]${words[2]}[},]" ||
                error "tests/gpu/run has no command ${words[2]}"
            for word in "${words[@]:2}"; do
                [[ $word != --* ]] || "${words[0]}" --help | grep -qE "(^|[ [])$word( |\]|$)" || error "tests/gpu/run has no option $word"
            done ;;
        tests/gpu/report)
            for word in "${words[@]:1}"; do
                [[ $word != --* ]] || "${words[0]}" --help | grep -qE "(^|[ [])$word( |\]|$)" || error "tests/gpu/report has no option $word"
            done ;;
        cmake) check_cmake "${words[@]:1}" ;;
        tensorboard) [ "${words[1]:-}" = --logdir ] || error "tensorboard is called with --logdir here" ;;
        *) error "no rule for ${words[0]}" ;;
    esac
done < <(cat "$folder"/*.commands)
[ "$checked" -gt 0 ] || { echo "no command was found in $folder"; exit 1; }
echo "$checked commands checked, $errors errors"
[ "$errors" -eq 0 ]
