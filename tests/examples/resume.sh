#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: resume.sh CIFAR10_TRAIN SAMPLE. Checks that N steps give the same bits as k steps and, in a new process, N - k more: the last
# checkpoints are equal files. For k around the end of an epoch (6 steps), with other workers and devices in the second process, for
# every optimiser, with accumulation, and with a new process for every step.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/small_data.sh"
small_data "$work/data" "$2"

last=13
common="--data-dir $work/data --batch-size 8 --threads-per-device 1"
run_number=0

# whole FLAGS...: makes a run without interruption; sets $expected to its last checkpoint.
whole() {
    run_number=$((run_number + 1))
    flags="$common $*"
    # shellcheck disable=SC2086
    trains $flags --max-steps $last --train-dir "$work/whole$run_number"
    expected=$work/whole$run_number/model-$last.safetensors
    [ "$(checkpoints "$work/whole$run_number")" = $last ] || fail "not one checkpoint at the end of: $flags"
    tail -n 1 "$work/output" >"$work/accuracy"
}

# goes_on FOLDER STEPS FLAGS...: resumes, and checks the message about it.
goes_on() {
    local folder=$1 steps=$2
    shift 2
    # shellcheck disable=SC2086
    trains $flags --max-steps "$steps" --train-dir "$folder" --resume "$@"
    grep -q "^resumed from $folder/model-[0-9]*.safetensors: step [0-9]* comes next$" "$work/output" || fail "it does not say that it resumed"
}

same_end() {
    cmp "$1/model-$last.safetensors" "$expected" || fail "not the same bits at the end: $2"
    tail -n 1 "$work/output" | diff - "$work/accuracy" || fail "another accuracy at the end: $2"
}

# stopped_at K 'FLAGS BEFORE' 'FLAGS AFTER': makes k steps, stops, and makes the rest.
stopped_at() {
    local folder=$work/stopped
    rm -rf "$folder"
    # shellcheck disable=SC2086
    trains $flags --max-steps "$1" --train-dir "$folder" $2
    # shellcheck disable=SC2086
    goes_on "$folder" $last $3
    same_end "$folder" "stopped after $1 steps, $flags, $2, then $3"
}

# Two replicas of 8: 6 steps per epoch. Different numbers of workers and of devices.
whole --num-replicas 2
of_two_replicas=$work/whole$run_number
cp "$work/accuracy" "$work/accuracy_of_two_replicas"
for k in 1 11 12; do
    stopped_at $k "--prefetch-workers $((k % 3))" "--prefetch-workers $((k % 4))"
done
stopped_at 5 '--num-devices 1 --prefetch-workers 0' '--num-devices 2 --prefetch-workers 3'
stopped_at 6 '--num-devices 2 --prefetch-workers 3' '--num-devices 1 --prefetch-workers 0'
stopped_at 7 '--num-devices 2 --prefetch-workers 1' '--num-devices 2 --prefetch-workers 0'
# With moving averages; output and other files do not change the bits.
stopped_at 6 '--checkpoint-every 1 --keep-checkpoints 2 --summary-every 2' '--log-parts --log-every 1 --keep-best --summary-every 3'
# Another seed gives another file: the comparison can fail.
# shellcheck disable=SC2086
trains $flags --max-steps $last --train-dir "$work/other" --seed 2
! cmp -s "$work/other/model-$last.safetensors" "$expected" || fail "the same bits with another seed"

# A new process for every step.
# shellcheck disable=SC2086
trains $flags --max-steps 1 --train-dir "$work/each" --keep-checkpoints 3
for ((k = 2; k <= last; ++k)); do goes_on "$work/each" $k --keep-checkpoints 3; done
same_end "$work/each" 'a process for every step'
[ "$(checkpoints "$work/each")" = '11 12 13' ] || fail "not the newest 3 checkpoints"

# The state of each optimiser, and several batches per step; a sum without a fixed order would be detected.
whole --num-replicas 2 --optimizer momentum --learning-rate 0.01 --warm-up-steps 8 --lr-scaling linear --clip-norm 1
stopped_at 7 '--num-devices 2' '--num-devices 1'  # inside an epoch, and during the warm-up of the rate
whole --num-replicas 2 --accumulation 2 --optimizer adam --learning-rate 0.001
for k in 2 3 4; do stopped_at $k '--num-devices 1 --prefetch-workers 0' '--num-devices 2 --prefetch-workers 3'; done
for optimizer in nesterov nesterov-velocity adamw rmsprop lars lamb; do
    whole --num-replicas 1 --accumulation 2 --optimizer $optimizer --learning-rate 0.001 --ema-decay 0
    stopped_at 6 '--prefetch-workers 0' '--prefetch-workers 1'
done

# No steps left: the accuracy is printed, and no file is written.
expected=$of_two_replicas/model-$last.safetensors
flags="$common --num-replicas 2"
cp "$work/accuracy_of_two_replicas" "$work/accuracy"
cp -r "$of_two_replicas" "$work/done"
goes_on "$work/done" $last
same_end "$work/done" 'resumed at the end'
grep -q "^nothing to train: $last steps are made, and --max-steps is $last$" "$work/output" || fail "no message that all steps are made"
goes_on "$work/done" 4
grep -q "^nothing to train: $last steps are made, and --max-steps is 4$" "$work/output" || fail "no message that more steps are made"
[ "$(checkpoints "$work/done")" = $last ] || fail "a checkpoint was written although nothing was trained"
no_temporary "$work/done" || fail "a temporary file is left"
echo "$checks runs"
