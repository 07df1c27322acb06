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
refuses '--averaging must be concat-mean, local-sgd, diloco, elastic, downpour, hogwild, backup, mpi-concat-mean or mpi-all-reduce on the CPU; nccl needs GPUs' --averaging nccl
refuses '--averaging must be concat-mean, local-sgd, diloco, elastic, downpour, hogwild, backup, mpi-concat-mean or mpi-all-reduce on the CPU; median is not an averaging policy' --averaging median
refuses '--gradient-compression must be none or bfloat16, not int8' --gradient-compression int8
refuses '--gradient-compression is for --averaging mpi-... or nccl: in one process of concat-mean nothing moves' --gradient-compression bfloat16
# Replicas with parameters of their own.
for value in 0 -1 1.5; do
    refuses "--period: $value is not a whole number from 1 to 1000000000000" --averaging local-sgd --period "$value"
done
refuses '--from-step: -1 is not a whole number from 0 to 1000000000000' --averaging local-sgd --from-step -1
for flag in --moving-rate --outer-rate --outer-momentum; do
    for value in -1 nan fast; do refuses "$flag: $value is not a number of at least 0" --averaging elastic $flag "$value"; done
done
refuses '--moving-rate must be more than 0' --averaging elastic --moving-rate 0
refuses '--outer-momentum must be less than 1, not 1' --averaging diloco --outer-momentum 1
refuses '--period is for --averaging local-sgd, diloco, elastic or downpour' --period 16
refuses '--period is for --averaging local-sgd, diloco, elastic or downpour' --averaging hogwild --period 16
refuses '--from-step is for --averaging local-sgd or diloco' --averaging elastic --from-step 0
refuses '--fragments: 0 is not a whole number from 1 to 1000000000000' --averaging diloco --fragments 0
refuses '--fragments is for --averaging local-sgd or diloco' --averaging elastic --fragments 2
refuses '--delay is for --averaging local-sgd or diloco' --averaging downpour --delay 1
refuses '--fragments must be at most --period, 4, not 5' --averaging local-sgd --period 4 --fragments 5
refuses '--delay must be less than --period / --fragments, 5, not 5' --averaging diloco --period 16 --fragments 3 --delay 5
refuses '--moving-rate is for --averaging elastic' --averaging local-sgd --moving-rate 0.1
refuses '--outer-rate is for --averaging diloco' --averaging local-sgd --outer-rate 0.7
refuses '--outer-momentum is for --averaging diloco' --averaging elastic --outer-momentum 0.9
refuses '--inner is for --averaging local-sgd, diloco, elastic, downpour or hogwild' --averaging concat-mean --inner concat-mean
refuses '--inner is for --averaging local-sgd, diloco, elastic, downpour or hogwild' --averaging backup --inner mpi-concat-mean
refuses '--inner must be concat-mean, for one process, or mpi-concat-mean for --averaging elastic with --order, whose replicas average nothing, not mpi-all-reduce' --averaging elastic --order free --inner mpi-all-reduce
refuses '--inner must be concat-mean, mpi-concat-mean, mpi-all-reduce or nccl, not gossip' --averaging diloco --inner gossip
refuses '--inner nccl is for --device cuda: NCCL exchanges between GPUs' --averaging elastic --inner nccl
refuses '--order is for --averaging elastic or downpour' --averaging hogwild --order free
refuses '--order must be free, round-robin or replay, not random' --averaging downpour --order random
refuses '--order replay needs --order-log, the file to read' --averaging downpour --order replay
refuses '--order-log is for --averaging downpour, or elastic with --order' --averaging elastic --order-log "$work/order"
refuses '--order-log: the path is empty' --averaging downpour --order-log ''
refuses '--ahead is for --averaging downpour, hogwild or backup, or elastic with --order' --averaging elastic --ahead 2
refuses '--backup-count is for --averaging backup' --averaging hogwild --backup-count 1
refuses '--backup-count must be at most --num-replicas, 2, not 3' --averaging backup --num-replicas 2 --backup-count 3
refuses '--order-log is for --averaging downpour, or elastic with --order' --averaging backup --order-log "$work/order"
refuses '--ahead: 0 is not a whole number from 1 to 4096' --averaging hogwild --ahead 0
refuses '--bn-stats synchronized is not for --averaging hogwild: no replica waits for another' --averaging hogwild --model resnet --bn-stats synchronized
refuses '--averaging elastic with --order is for --precision float' --averaging elastic --order free --precision bf16
refuses '--profile is not for --averaging elastic with --order: its replicas are in several steps at once' --averaging elastic --order free --profile
refuses '--gradient-compression is for --averaging mpi-... or nccl' --averaging local-sgd --gradient-compression bfloat16
refuses '--deadline is for --averaging mpi-... or nccl' --averaging local-sgd --deadline 5
refuses '--survive is for --averaging mpi-concat-mean: with diloco a training ends' --averaging diloco --survive --train-dir "$work/log"
# A network in parts.
for value in 0 1 5 -2 two; do refuses "--pipeline: $value is not a whole number from 2 to 4" --pipeline "$value"; done
refuses '--pipeline must be at most 3 for --model tutorial, which has no more places for cuts, not 4' --pipeline 4
refuses '--pipeline-schedule must be 1f1b or gpipe, not zero-bubble' --pipeline 2 --pipeline-schedule zero-bubble
refuses '--pipeline-schedule is for --pipeline' --pipeline-schedule gpipe
for value in 1 3 6; do
    refuses "--num-devices must be --pipeline, 2, times 1 to --num-replicas, 2, not $value" --pipeline 2 --num-replicas 2 --num-devices $value
done
for averaging in '--averaging mpi-concat-mean' '--averaging local-sgd --inner mpi-concat-mean'; do
    # shellcheck disable=SC2086
    through='env OMPI_COMM_WORLD_SIZE=2' refuses '--num-devices must be --pipeline, 2, times 1 to the replicas of each of 2 processes, 1, not 4' \
        $averaging --pipeline 2 --num-replicas 2 --num-devices 4
done
through='env OMPI_COMM_WORLD_SIZE=2' refuses '--bn-stats synchronized is not for --pipeline 2: its' \
    --averaging mpi-concat-mean --pipeline 2 --num-replicas 4 --num-devices 4 --model resnet --bn-stats synchronized
refuses '--bn-stats synchronized is not for --pipeline 2: its parts compute several batches at a time' --pipeline 2 --model resnet --bn-stats synchronized
refuses '--averaging hogwild is not for --pipeline 2: no replica waits for another' --pipeline 2 --averaging hogwild
refuses '--averaging elastic with --order is not for --pipeline 3: ' --pipeline 3 --averaging elastic --order free
refuses '--profile is not for --pipeline 2: it measures the network without its cuts' --pipeline 2 --profile
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
    --prefetch-workers --averaging --period --from-step --fragments --delay --moving-rate --outer-rate --outer-momentum --inner --order --order-log --ahead --backup-count --pipeline --pipeline-schedule --learning-rate --log-every --seed --profile --help; do
    grep -q -- "$flag" "$work/output" || fail "--help does not name $flag"
done
echo "$checks command lines"
