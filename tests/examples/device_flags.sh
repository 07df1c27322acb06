#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: device_flags.sh CIFAR10_TRAIN CUDA. Checks that flags which do not fit --device or each other are rejected with a message, before
# the data set is read and before a GPU is used. CUDA is 1 for a program that was built with it; without it, the message says how to
# build it.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"
cuda=(--device cuda)
nccl=(--device cuda --averaging nccl)

refuses '--device must be host or cuda, not tpu' --device tpu
refuses '--device needs a value' --device

# Flags of the other device.
refuses '--averaging must be concat-mean, local-sgd, diloco, elastic, downpour, hogwild, backup, mpi-concat-mean or mpi-all-reduce on the CPU; nccl needs GPUs, --device cuda' --device host --averaging nccl
refuses '--tf32 is for --device cuda' --tf32
refuses '--tf32-convolutions is for --device cuda' --tf32-convolutions
refuses '--deterministic is for --device cuda: on the host the same number of threads gives the same bits without it' --deterministic
refuses '--devices-per-gpu is for --device cuda' --devices-per-gpu 2
refuses '--devices-per-gpu is not for --averaging nccl: NCCL allows a GPU only one rank of a process' "${nccl[@]}" --devices-per-gpu 2
for value in 0 -1 two; do
    refuses "--devices-per-gpu: $value is not a whole number from 1 to 1024" "${cuda[@]}" --devices-per-gpu $value
done
refuses '--plan-choices is for --device cuda' --plan-choices "$work/plans"
refuses '--plan-seconds is for --device cuda' --plan-seconds 1
refuses '--threads-per-device is for --device host' "${cuda[@]}" --threads-per-device 2
for workers in 0 3; do
    refuses '--prefetch-workers is for --device host: GPUs make their batches themselves' "${cuda[@]}" --prefetch-workers $workers
done
for algorithm in winograd direct; do
    refuses '--convolution is for --device host: cuDNN computes those of GPUs' "${cuda[@]}" --convolution $algorithm
done
refuses '--bn-stats synchronized is for --device host: replicas on GPUs normalise over their own batches' \
    "${cuda[@]}" --model resnet --bn-stats synchronized
refuses '--profile is for --device host' "${cuda[@]}" --profile
refuses '--averaging must be concat-mean, local-sgd, diloco, elastic or nccl on GPUs, not median' "${cuda[@]}" --averaging median
refuses '--inner mpi-concat-mean is for --device host' "${cuda[@]}" --averaging elastic --inner mpi-concat-mean
refuses '--devices-per-gpu is not for --inner nccl: NCCL allows a GPU only one rank of a process' "${cuda[@]}" --averaging elastic --inner nccl --devices-per-gpu 2
refuses '--averaging downpour is for --device host: replicas exchange' "${cuda[@]}" --averaging downpour
refuses '--order is for --device host: replicas exchange' "${cuda[@]}" --averaging elastic --order free
refuses '--averaging elastic is not for --precision half, whose loss scale skips steps: use bf16' "${cuda[@]}" --averaging elastic --precision half
refuses '--precision must be float, bf16 or half, not fp8' "${cuda[@]}" --precision fp8
refuses '--precision half is for --device cuda: the processors compute in float or bf16' --precision half

# Several processes.
unset CUPOLA_NCCL_ID
for flag in '--processes 2' '--process 0' "--id-file $work/id" '--address 127.0.0.1:4711'; do
    for averaging in '--device host' '--device cuda --averaging concat-mean'; do
        # shellcheck disable=SC2086
        refuses '--processes, --process, --id-file and --address are for --averaging nccl' $averaging $flag
    done
done
refuses '--processes 2 needs --process, the number of this one from 0 to 1' "${nccl[@]}" --processes 2 --id-file "$work/id"
refuses '--process must be less than --processes, 2, not 2' "${nccl[@]}" --processes 2 --process 2 --id-file "$work/id"
refuses '--process must be less than --processes, 1, not 1' "${nccl[@]}" --processes 1 --process 1
refuses '--process 1 needs --processes, their number' "${nccl[@]}" --process 1
refuses '--id-file and --address exclude each other' "${nccl[@]}" --id-file "$work/id" --address 127.0.0.1:4711
refuses '--processes 2 needs --id-file, the name of a new file, the same for all of them, or --address, the host and a port of process 0, or the environment variables MASTER_ADDR and MASTER_PORT, or CUPOLA_NCCL_ID' \
    "${nccl[@]}" --processes 2 --process 0
for value in 0 -1 1025 two; do
    refuses "--processes: $value is not a whole number from 1 to 1024" "${nccl[@]}" --processes "$value"
    [ "$value" = 0 ] || refuses "--process: $value is not a whole number from 0 to 1023" "${nccl[@]}" --process "$value"
done
through='env RANK=1' refuses 'the environment variable RANK is "1", but WORLD_SIZE is not set: a launcher sets both' "${nccl[@]}"
through='env RANK=1 WORLD_SIZE=2 MASTER_ADDR=a' \
    refuses 'the environment variable MASTER_ADDR is "a", but MASTER_PORT is not set: both are needed' "${nccl[@]}"
refuses '--id-file: the path is empty' "${nccl[@]}" --id-file ''
refuses '--plan-choices: the path is empty' "${cuda[@]}" --plan-choices ''
refuses '--plan-seconds: -1 is not a number of at least 0' "${cuda[@]}" --plan-seconds -1
[ ! -e "$work/id" ] || fail "a file was made for flags that were refused"

# The flags are valid; only the program lacks CUDA.
if [ "$2" != 1 ]; then
    for arguments in '' '--precision half' '--precision bf16 --averaging nccl' '--averaging elastic --inner nccl --processes 1' '--model resnet --tf32 --deterministic' --tf32-convolutions; do
        # shellcheck disable=SC2086
        refuses 'this program was built without CUDA: leave out --device cuda, or build it again after configuring Cupola with -DCUPOLA_CUDA=ON' \
            --device cuda $arguments --train-dir "$work/run"
    done
    [ ! -e "$work/run" ] || fail "a folder was made for a run that cannot be"
    # What a launcher says of its processes is printed, and flags have precedence.
    through='env RANK=1 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=4711' refuses 'this program was built without CUDA' "${nccl[@]}"
    grep -qx 'process 1 of 4, from RANK and WORLD_SIZE' "$work/output" || fail "the number of the process is not printed"
    through='env RANK=1 WORLD_SIZE=one' refuses 'this program was built without CUDA' "${nccl[@]}" --processes 2 --process 0 --id-file "$work/id"
    ! grep -q '^process ' "$work/output" || fail "a number of the process is printed that is not a launcher's"
fi

trains --help
for flag in --device --devices-per-gpu --tf32 --tf32-convolutions --deterministic --plan-choices --plan-seconds --processes --process --id-file --address; do
    grep -qE -- "(^| )$flag( |$)" "$work/output" || fail "--help does not name $flag"
done
echo "$checks command lines"
