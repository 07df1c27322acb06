// SPDX-License-Identifier: Apache-2.0
//
// The trainings on `Cuda` with the emulator's GPUs, compiled as C++, and so with the layers that are placed on `Host`.
#define CUPOLA_TEST_EMULATED
#define CUPOLA_TEST_NCCL
#include <cupola/host.hpp>

#include "../emulator/listener.hpp"
#include "training_cuda.cu"
