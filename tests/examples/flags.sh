#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: flags.sh CIFAR10_TRAIN. Every kind of invalid flag value is rejected with a message that names the flag and
# the value, before the data set is read; --help names every flag.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"

for value in 0 -1 99999999999 99999999999999999999 abc 2.5 1e3 ''; do
    refuses "--num-replicas: $value is not a whole number from 1 to 1048576" --num-replicas "$value"
done
refuses '--num-devices must be at most --num-replicas, 2, not 3' --num-replicas 2 --num-devices 3
refuses '--num-devices: -1 is not a whole number from 0 to 4096' --num-devices -1
for value in -3 100000 1.5; do
    refuses "--threads-per-device: $value is not a whole number from 0 to 4096" --threads-per-device "$value"
done
for value in 0 -5 9223372036854775808; do
    refuses "--batch-size: $value is not a whole number from 1 to 1000000000" --batch-size "$value"
done
for value in 0 -1 many 0.5 0x10; do
    refuses "--max-steps: $value is not a whole number from 1 to 1000000000000" --max-steps "$value"
done
for value in -1 nan inf -inf abc 1e999 0.1x; do
    refuses "--learning-rate: $value is not a number of at least 0" --learning-rate "$value"
done
for value in -1 abc; do
    refuses "--log-every: $value is not a whole number from 0 to 1000000000000" --log-every "$value"
    refuses "--prefetch-workers: $value is not a whole number from 0 to 1024" --prefetch-workers "$value"
done
for value in -1 18446744073709551616 abc; do
    refuses "--seed: $value is not a whole number from 0 to 18446744073709551615" --seed "$value"
done
refuses '--max-steps: 010 begins with a zero: remove it' --max-steps 010
refuses '--seed: 00 begins with a zero: remove it' --seed 00
refuses '--averaging must be concat-mean, mpi-concat-mean or mpi-all-reduce on the CPU; nccl needs GPUs' --averaging nccl
refuses '--averaging must be concat-mean, mpi-concat-mean or mpi-all-reduce on the CPU; median is not an averaging policy' --averaging median
refuses '--gradient-compression must be none or bfloat16, not int8' --gradient-compression int8
refuses '--gradient-compression is for --averaging mpi-... or nccl: in one process of concat-mean nothing moves' --gradient-compression bfloat16
refuses '--profile runs a few steps and writes nothing: omit --train-dir' --profile --train-dir "$work/log"
refuses '--data-dir: the path is empty' --data-dir ''
refuses '--train-dir: the path is empty' --train-dir ''
refuses '--seed needs a value' --seed
refuses '--learning-rte' --learning-rte 0.1
refuses 'surplus' surplus

# These values are rejected before the data set is read: here there is none.
no_data=(--data-dir "$work/none")
refuses '--optimizer must be sgd, momentum, nesterov, nesterov-velocity, adam, adamw, adamax, adagrad, rmsprop, lars or lamb, not adadelta' "${no_data[@]}" --optimizer adadelta
refuses '--schedule must be epochs, historic, resnet, cosine or constant, not steps' "${no_data[@]}" --schedule steps
refuses '--lr-scaling must be none, linear or square-root, not quadratic' "${no_data[@]}" --lr-scaling quadratic
refuses '--bn-stats is for --model resnet' "${no_data[@]}" --bn-stats merged
refuses '--bn-stats must be first, last, all, merged or synchronized, not median' "${no_data[@]}" --model resnet --bn-stats median
refuses 'the decay of the moving averages must be ' "${no_data[@]}" --ema-decay 1.5
refuses "$work/none" "${no_data[@]}" --optimizer adam --schedule cosine --lr-scaling linear
refuses "$work/none" "${no_data[@]}" --model resnet --bn-stats merged
[ ! -s "$work/output" ] || fail "something on standard output"

# Errors of several sizes together are found only with the data set.
refuses '1 replica of 100000 samples) is larger than the data set' --batch-size 100000
refuses '3 replicas of 2000 samples) is larger than the data set' --batch-size 2000 --num-replicas 3
grep -q 'which has 5000' "$work/errors" || fail "the size of the data set is not named"

trains --help
for flag in --data-dir --train-dir --max-steps --batch-size --num-replicas --num-devices --threads-per-device \
    --prefetch-workers --averaging --learning-rate --log-every --seed --profile --help; do
    grep -q -- "$flag" "$work/output" || fail "--help does not name $flag"
done
echo "$checks command lines"
