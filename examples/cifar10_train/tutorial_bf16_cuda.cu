// SPDX-License-Identifier: Apache-2.0
#include <cupola/models/cifar10_net.hpp>

#include "models.hpp"
#include "run_on_cuda.hpp"

namespace cifar10 {

int run_tutorial_bf16_cuda(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                           const std::string& optimizer) {
    return run_on_cuda<Cifar10NetBf16, Cifar10Loss, TutorialAugmentation, CenterCrop>(options, images, schedule,
                                                                                      optimizer);
}

}  // namespace cifar10
