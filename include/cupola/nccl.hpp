// SPDX-License-Identifier: Apache-2.0
//
// Averaging by NCCL on NVIDIA GPUs: a training with NcclAllReduce includes this header in addition to
// <cupola/cuda.hpp>. It needs NCCL 2 (cupola::nccl).
#pragma once

#include <cupola/parallel/compressed.hpp>
#include <cupola/processes/nccl/nccl_collective.hpp>
