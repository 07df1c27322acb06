#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Usage: flags_without_mpi.sh CIFAR10_TRAIN. A program that was built without MPI rejects the policies that need it.
. "$(dirname "${BASH_SOURCE[0]}")/support.sh" "$@"

for policy in mpi-concat-mean mpi-all-reduce; do
    message="this program was built without MPI: leave out --averaging $policy, or build it again after configuring Cupola with -DCUPOLA_MPI=ON"
    refuses "$message" --averaging $policy
    refuses "${message/averaging/inner}" --averaging elastic --inner $policy
    refuses "$message" --averaging $policy --num-replicas 4 --train-dir "$work/run"
done
refuses "this program was built without MPI" --averaging mpi-concat-mean --train-dir "$work/run" --survive
[ ! -e "$work/run" ] || fail "there is a folder of a run that was refused"
"$1" --averaging concat-mean || fail "the policy of one process is refused too"
