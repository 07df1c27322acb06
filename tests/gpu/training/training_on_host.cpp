// SPDX-License-Identifier: Apache-2.0
//
// The trainings on the `Cuda` of on_host/, compiled as C++, and so with the layers that are placed on `Host`.
#define CUPOLA_TEST_ON_HOST
#define CUPOLA_TEST_NCCL
#include <cupola/host.hpp>

#include "training_cuda.cu"
