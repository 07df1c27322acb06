// SPDX-License-Identifier: Apache-2.0
//
// What this program has for --device cuda: the networks that nvcc compiled, or a sentence that says how to build them.
#include "models.hpp"

#ifdef CUPOLA_EXAMPLE_CUDA

#include <cupola/device/cuda.hpp>

namespace cifar10 {

void require_cuda(const TrainOptions& options) {
#ifndef CUPOLA_EXAMPLE_NCCL
    require(options.averaging != "nccl",
            "this program was built without NCCL: leave out --averaging nccl, or build it again after\
 configuring Cupola with -DCUPOLA_ENABLE_NCCL=ON");
#endif
    const int gpus = cuda_devices();
    require<DeviceError>(options.num_devices <= gpus,
                         "--num-devices is at most the number of GPUs that this process sees, ", gpus, ", not ",
                         options.num_devices);
}

Model* cuda_model(bool tutorial, bool in_float) {
    if (tutorial) return in_float ? run_tutorial_cuda : run_tutorial_bf16_cuda;
    return in_float ? run_resnet_cuda : run_resnet_bf16_cuda;
}

}  // namespace cifar10

#else

namespace cifar10 {

void require_cuda(const TrainOptions&) {
    throw InvalidArgument(
        "this program was built without CUDA: leave out --device cuda, or build it again after configuring Cupola\
 with -DCUPOLA_CUDA=ON, for which NVIDIA's CUDA toolkit 13 and cuDNN 9 have to be installed");
}

Model* cuda_model(bool, bool) {
    require_cuda({});
    return nullptr;
}

}  // namespace cifar10

#endif
