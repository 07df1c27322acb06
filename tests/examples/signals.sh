#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: signals.sh CIFAR10_TRAIN SAMPLE. Checks that SIGTERM, Ctrl-C and SIGHUP end a run after the current step, with a checkpoint from which it
# continues with the same bits; that a second signal, and a signal in the evaluation, ends the process at once; and that a run that
# diverges stores the parameters before the step.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/small_data.sh"
small_data "$work/data" "$2"
trap '[ -z "${child:-}" ] || kill -9 $child 2>/dev/null || true; rm -rf "$work"' EXIT
base=(--data-dir "$work/data" --batch-size 8 --threads-per-device 1 --log-every 1)

# begin ARGUMENTS...: starts the program in the background as $child. By default a shell ignores Ctrl-C for such processes.
begin() {
    : >"$work/output"  # the output of the run before must not end a wait
    env --default-signal=INT,HUP "$program" "$@" >"$work/output" 2>"$work/errors" </dev/null &
    child=$!
}
# ended: waits for $child and sets $status.
ended() {
    status=0
    { wait $child || status=$?; } 2>/dev/null
    child=
    checks=$((checks + 1))
}
stepped() { wait_for "grep -q ': step $1,' '$work/output'"; }

# Stopped three times before the end, with a schedule that depends on the number of steps.
last=60
flags=("${base[@]}" --num-replicas 2 --max-steps $last --schedule cosine --optimizer momentum --learning-rate 0.01)
trains "${flags[@]}" --train-dir "$work/whole"
resume=()
for signal in TERM:15:5 INT:2:20 HUP:1:35; do
    IFS=: read -r name number step <<<"$signal"
    begin "${flags[@]}" --train-dir "$work/stopped" "${resume[@]}"
    stepped "$step"
    kill -s "$name" $child
    ended
    [ $status = $((128 + number)) ] || fail "exit status $status after SIG$name"
    [ ! -s "$work/errors" ] || fail "something on standard error after SIG$name"
    made=$(losses | tail -n 1 | cut -d ' ' -f 1)
    [ "$made" -lt $((last - 1)) ] || fail "the run was not stopped by SIG$name"
    [ "$(tail -n 1 "$work/output")" = "stopped by signal $number after $((made + 1)) step$([ "$made" -eq 0 ] || echo s); --resume continues from $work/stopped" ] ||
        fail "no message that the run was stopped by SIG$name"
    [ "$(checkpoints "$work/stopped" | sed 's/.* //')" = $((made + 1)) ] || fail "no checkpoint of the last whole step after SIG$name"
    no_temporary "$work/stopped" || fail "a temporary file is left by SIG$name"
    resume=(--resume)
done
trains "${flags[@]}" --train-dir "$work/stopped" --resume
cmp "$work/stopped/model-$last.safetensors" "$work/whole/model-$last.safetensors" || fail "not the same bits at the end"

# Under nohup SIGHUP stays ignored: the run goes on until its end.
env --ignore-signal=HUP "$program" "${base[@]}" --max-steps 40 --train-dir "$work/nohup" >"$work/output" 2>"$work/errors" </dev/null &
child=$!
stepped 5
kill -HUP $child
ended
[ $status = 0 ] || fail "exit status $status after SIGHUP, which was ignored"
[ "$(checkpoints "$work/nohup")" = 40 ] || fail "no checkpoint of the last step where SIGHUP was ignored"

# A reader that has seen enough closes the standard output: the run ends with a checkpoint, then a message.
mkfifo "$work/pipe"
env --default-signal=PIPE "$program" "${base[@]}" --max-steps 100000 --train-dir "$work/closed" >"$work/pipe" 2>"$work/errors" </dev/null &
child=$!
: >"$work/output"
grep -m 1 ': step 5,' "$work/pipe" >/dev/null
ended
[ $status = 1 ] || fail "exit status $status with a closed standard output"
made=$(checkpoints "$work/closed")
[ "$(cat "$work/errors")" = "cifar10_train: the log line of step $((made - 1)) could not be written: Broken pipe" ] ||
    fail "not the message of a closed standard output, after checkpoint $made"
no_temporary "$work/closed" || fail "a temporary file is left by a closed standard output"

# Without a folder nothing is kept, and a message says so.
begin "${base[@]}" --max-steps 100000
stepped 1
kill -INT $child
ended
[ $status = 130 ] || fail "exit status $status after SIGINT without --train-dir"
grep -q '^stopped by signal 2 after [0-9]* steps*; without --train-dir nothing was kept$' "$work/output" || fail "no message that nothing was kept"

# Twice in one step, the first, which takes a second or more: the process ends at once, in the middle of the step.
catches_interrupts() { (($(sed -nE 's/^SigCgt:[[:space:]]*/0x/p' "/proc/$child/status") & 2)); }
for second in INT:2 TERM:15; do
    IFS=: read -r name number <<<"$second"
    begin "${base[@]}" --accumulation 300 --max-steps 3 --train-dir "$work/twice$name"
    wait_for '[ "$(cat /proc/$child/comm)" = cifar10_train ]'  # until then the process is the shell
    wait_for catches_interrupts
    kill -INT $child
    wait_for '! catches_interrupts'
    kill -s "$name" $child
    ended
    [ $status = $((128 + number)) ] || fail "exit status $status after SIGINT and SIG$name"
    ! grep -Eq 'stopped by signal|: step ' "$work/output" || fail "SIGINT and SIG$name in one step did not end it at once"
    [ -z "$(checkpoints "$work/twice$name")" ] || fail "a checkpoint of half a step"
    no_temporary "$work/twice$name" || fail "a half-written checkpoint is left"
done

# In the evaluation at the end, here of 4,000 images: the result of the training is stored, and Ctrl-C ends the process.
cp -r "$work/data" "$work/long"
for _ in {1..250}; do cat "$work/data/test_batch.bin"; done >"$work/long/test_batch.bin"
begin --data-dir "$work/long" --batch-size 8 --threads-per-device 1 --max-steps 1 --train-dir "$work/evaluated"
wait_for "[ -e '$work/evaluated/model-1.safetensors' ]"
wait_for '! catches_interrupts'
kill -INT $child
ended
[ $status = 130 ] || fail "exit status $status after SIGINT in the evaluation"
! grep -q 'accuracy' "$work/output" || fail "the evaluation went on after Ctrl-C"

# A run that diverges: the message has the step, the replica and the layer; the checkpoint has the parameters before that step.
diverging=("${base[@]}" --num-replicas 2 --learning-rate 1e9 --train-dir "$work/diverged")
refuses 'training diverged' "${diverging[@]}" --max-steps 20
[ $status = 1 ] || fail "exit status $status of a run that diverged"
grep -Eq ' of replica [01] is .* at step [0-9]+: the output of layer [0-9]+ \(LocalResponseNorm<4>\) is the first that is not finite; .*; the parameters are those before the step$' "$work/errors" ||
    fail "replica, step or layer are not named"
step=$(sed -nE 's/.* at step ([0-9]+).*/\1/p' "$work/errors")
cp "$work/errors" "$work/said"
[ "$(checkpoints "$work/diverged")" = "$step" ] || fail "not the checkpoint before step $step"
no_temporary "$work/diverged" || fail "a temporary file is left by a run that diverged"
# Whether the loss of the test images is then finite depends on the processor.
run "${base[@]}" --num-replicas 2 --learning-rate 1e9 --train-dir "$work/before" --max-steps "$step"
cmp "$work/before/model-$step.safetensors" "$work/diverged/model-$step.safetensors" || fail "not the parameters before step $step"
refuses 'training diverged' "${diverging[@]}" --max-steps 20 --resume
diff "$work/errors" "$work/said" || fail "resumed, it diverges in other words"
echo "$checks runs"
