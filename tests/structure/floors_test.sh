#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# floors.sh finds each kind of error in a small tree of headers, and none in a tree without.
. "$(dirname "$0")/test_of_script.sh"

# expect RESULT HEADER INCLUDE-LINE: one header beside a good one.
expect() {
    rm -rf "$tree/cupola"
    mkdir -p "$tree/cupola/layers" "$(dirname "$tree/cupola/$2")"
    echo '#include <cupola/core/error.hpp>' >"$tree/cupola/layers/good.hpp"
    echo "$3" >"$tree/cupola/$2"
    says "$1" "$2" "$2 with '$3'"
}

expect accepted layers/a.hpp '#include <cupola/ops/b.hpp>'
expect accepted layers/a.hpp '#include <cupola/layers/impl/b.hpp>'
expect accepted cupola.hpp '#include <cupola/train/b.hpp>'
expect accepted host.hpp '#include <cupola/compiled_training.hpp>'
expect accepted ops/host/impl/a.hpp '#include <cupola/ops/host/impl/b.hpp>'
expect accepted processes/a.hpp '#include <cupola/parallel/step/b.hpp>'
expect accepted nccl.hpp '#include <cupola/processes/nccl/b.hpp>'
expect refused train/a.hpp '#include <cupola/parallel/step/b.hpp>'
expect refused train/a.hpp '#include <cupola/processes/b.hpp>'
expect refused layers/a.hpp '#include <cupola/net/b.hpp>'
expect refused core/a.hpp '#  include <cupola/device/b.hpp>'
expect refused layers/a.hpp '#include <cupola/ops/impl/b.hpp>'
expect refused layers/a.hpp '#include <cupola/cupola.hpp>'
expect refused layers/a.hpp '#include <cupola/misc/b.hpp>'
expect refused misc/a.hpp '#include <cupola/core/b.hpp>'
expect refused layers/a.hpp '#include "b.hpp"'
# Components.
expect accepted ops/host/a.hpp '#include <cupola/device/host.hpp>'
expect accepted processes/mpi/a.ipp '#include <cupola/ops/host/b.hpp>'
expect accepted processes/nccl/nccl_calls.hpp '#include <cupola/device/cuda.hpp>'
expect accepted data/impl/images/a.hpp '#include <png.h>'
expect accepted processes/nccl/nccl_calls.hpp '#include <cuda_runtime.h>'
expect refused parallel/a.hpp '#include <cupola/device/host.hpp>'
expect refused cupola.hpp '#include <cupola/host.hpp>'
expect refused ops/host/a.hpp '#include <cupola/device/cuda.hpp>'
expect refused ops/cuda/impl/a.cuh '#include <cupola/ops/host/b.hpp>'
expect refused cuda.hpp '#include <cupola/nccl.hpp>'
expect refused data/a.hpp '#include <png.h>'
expect refused ops/cuda/a.hpp '#  include <omp.h>'
expect refused device/cuda.hpp '#include <nccl.h>'
