// SPDX-License-Identifier: Apache-2.0
//
// The trainings on the `Cuda` of on_host/, compiled as C++.
#define CUPOLA_TEST_ON_HOST
#define CUPOLA_TEST_NCCL
#include "training_cuda.cu"
