# SPDX-License-Identifier: Apache-2.0
#
# Functions for the tests of the example programs; sourced by a test whose first argument is the program. Each test has a
# folder of its own, $work, which is removed at its end.
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

# run ARGUMENTS...: runs the program; sets $work/output, $work/errors and $status. A command in $through (taskset, setpriv) is
# put before it.
run() {
    status=0
    ${through:-} "$program" "$@" >"$work/output" 2>"$work/errors" </dev/null || status=$?
}

# trains ARGUMENTS...: checks that the run succeeds and prints nothing on standard error.
trains() {
    run "$@"
    [ "$status" = 0 ] || fail "exit status $status of: $*"
    [ ! -s "$work/errors" ] || fail "something on standard error of: $*"
    checks=$((checks + 1))
}

# refuses 'WORDS' ARGUMENTS...: checks that the run fails with one line on standard error that begins with the name of the
# program and has the words, without a signal and without an accuracy.
refuses() {
    local words=$1
    shift
    run "$@"
    refused "$words" "$@"
}

# refused 'WORDS' ARGUMENTS...: the same check of the last run.
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

# as_other_user WHAT COMMAND...: the command where $program runs without root's rights; says that WHAT is not tested where it cannot.
as_other_user() {
    local what=$1
    shift
    if [ "$(id -u)" = 0 ]; then
        chmod o+rx "$work"
        through="setpriv --reuid=65534 --regid=65534 --clear-groups"
    fi
    if ${through:-} "$program" --help >/dev/null 2>&1; then
        "$@"
    else
        echo "not tested, for another user may not run the program: $what"
    fi
    through=
}

# Prints the step and the loss of each line in the log of the last run, "10 4.66": the parts that do not vary between runs.
losses() { sed -nE 's|^.*: step ([0-9]+), loss = ([0-9.]+) .*|\1 \2|p' "$work/output"; }

# One processor, so that the needs of a run do not depend on the machine.
one_processor="taskset -c $(sed -nE 's/^Cpus_allowed_list:[[:space:]]*([0-9]+).*/\1/p' /proc/self/status)"

# as_pytorch_saves FROM TO: the parameters of a checkpoint alone, as in a file that PyTorch saved.
as_pytorch_saves() {
    python3 - "$@" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
(length,) = struct.unpack("<Q", data[:8])
header = {k: v for k, v in json.loads(data[8 : 8 + length]).items() if not k.startswith(("ema.", "optimizer.", "__"))}
body = b""
for entry in header.values():
    begin, end = entry["data_offsets"]
    entry["data_offsets"] = [len(body), len(body) + end - begin]
    body += data[8 + length + begin : 8 + length + end]
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + body)
END
}
