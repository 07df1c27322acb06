# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the example programs share; sourced, with the program as the first argument of the test. Each test has
# a folder of its own, $work, that goes when it ends.
set -euo pipefail
export LC_ALL=C
program=$1
work=$(mktemp -d)
trap 'chmod -R u+rwx "$work"; rm -rf "$work"' EXIT
checks=0

fail() {
    printf '%s\n' "$*"
    [ ! -s "$work/output" ] || { echo "--- standard output:"; head -n 60 "$work/output"; }
    [ ! -s "$work/errors" ] || { echo "--- standard error:"; head -n 20 "$work/errors"; }
    exit 1
}

# run ARGUMENTS...: into $work/output, $work/errors and $status. A command in $through (taskset, setpriv) is put before.
run() {
    status=0
    ${through:-} "$program" "$@" >"$work/output" 2>"$work/errors" </dev/null || status=$?
}

# trains ARGUMENTS...: a run that ends well and says nothing on standard error.
trains() {
    run "$@"
    [ "$status" = 0 ] || fail "exit status $status of: $*"
    [ ! -s "$work/errors" ] || fail "something on standard error of: $*"
    checks=$((checks + 1))
}

# refuses 'WORDS' ARGUMENTS...: the run fails, in one line on standard error that begins with the program's name and has
# the words, and it was not killed by a signal; no accuracy is printed.
refuses() {
    local words=$1
    shift
    run "$@"
    refused "$words" "$@"
}

# refused 'WORDS' ARGUMENTS...: that the last run was.
refused() {
    local words=$1
    shift
    [ "$status" != 0 ] || fail "exit status 0 of: $*"
    [ "$status" -lt 124 ] || fail "killed, exit status $status, of: $*"
    [ "$(wc -l <"$work/errors")" = 1 ] || fail "not one line on standard error of: $*"
    local message
    message=$(cat "$work/errors")
    case $message in
        "${program##*/}: "*"$words"*) ;;
        *) fail "standard error does not say '$words' of: $*" ;;
    esac
    ! grep -q 'test accuracy' "$work/output" || fail "an accuracy is printed by: $*"
    checks=$((checks + 1))
}

# What the log lines of the last run say, without what differs from run to run: "10 4.66", a step and its loss each.
losses() { sed -nE 's|^.*: step ([0-9]+), loss = ([0-9.]+) .*|\1 \2|p' "$work/output"; }

# One processor, so that what a run needs does not depend on the machine.
one_processor="taskset -c $(sed -nE 's/^Cpus_allowed_list:[[:space:]]*([0-9]+).*/\1/p' /proc/self/status)"
