// SPDX-License-Identifier: Apache-2.0
//
// The trainings on `Cuda` with emulated GPUs, compiled as C++ and therefore with the layers that are placed on `Host`.
#define CUPOLA_TEST_EMULATED
#define CUPOLA_TEST_NCCL
#include <cupola/host.hpp>

#include "../emulator/listener.hpp"
#include "training_cuda.cu"
