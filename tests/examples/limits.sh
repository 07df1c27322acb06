#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: limits.sh CIFAR10_TRAIN. Checks that limits of the machine are reported in one message: memory, threads, a full disk, a folder
# that cannot be created; and also a loss that is not finite.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"

# With 4 GB of address space the 17.1 GB of 4000 gradients do not fit on any machine.
through="$one_processor prlimit --as=4000000000"
refuses '4000 replicas on 1 device do not fit' --num-replicas 4000 --batch-size 1
grep -q '17.1 GB gradients of 4000 replicas' "$work/errors" || fail "the memory needed is not named"
grep -Eq '[0-9]\.[0-9] GB are available' "$work/errors" || fail "the memory available is not named"

# With stacks of 1 GB there is no memory for those of all 8 devices.
through="$one_processor prlimit --as=6000000000 --stack=1000000000"
refuses 'of 8 threads for devices could be started: ' --num-replicas 8 --num-devices 8 --batch-size 1
grep -Eq 'only [1-7] of 8 threads for devices could be started' "$work/errors" || fail "the threads given are not named"
through=

for rate in 1e6 1e30; do
    refuses ' at step ' --learning-rate $rate --num-replicas 2 --batch-size 16 --max-steps 50
    grep -Eq '(loss|gradient) of replica [01] is .* at step [1-9][0-9]*: .*; training diverged' "$work/errors" ||
        fail "the replica and the step are not named"
done

refuses 'the folder /proc/no cannot be created: ' --train-dir /proc/no/such/folder --max-steps 1
refuses "$program is not a folder" --train-dir "$program" --max-steps 1
mkdir "$work/full"
ln -s /dev/full "$work/full/train.log"
refuses "the log $work/full/train.log could not be written: No space left on device" --train-dir "$work/full" --batch-size 16

# A pipe in place of the log, with or without a reader, is rejected without a wait.
mkdir "$work/pipe"
mkfifo "$work/pipe/train.log"
through='timeout 60'
refuses "the log $work/pipe/train.log cannot be written: it is a pipe, not a file" --train-dir "$work/pipe" --batch-size 16
exec 8<>"$work/pipe/train.log"
refuses "the log $work/pipe/train.log cannot be written: it is a pipe, not a file" --train-dir "$work/pipe" --batch-size 16
exec 8>&-
through=

# A full disk for standard output is an error when something is printed, or at the end of a run that prints no line.
for every in 1 0; do
    status=0
    "$program" --max-steps 1 --batch-size 16 --log-every $every >/dev/full 2>"$work/errors" || status=$?
    [ "$status" = 1 ] || fail "exit status $status with a full standard output"
    grep -q 'could not be written.*: No space left on device' "$work/errors" || fail "no message that the disk is full"
    checks=$((checks + 1))
done
echo "$checks runs"
