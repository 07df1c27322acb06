// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"
#include "resnet_parts.hpp"
#include "run_on_cuda.hpp"

namespace cifar10 {

int run_resnet_bf16_cuda(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                         const std::string& optimizer) {
    return run_on_cuda<ResNetBf16, ResNetLoss, RandomCropFlip, ScaledPixels>(options, images, schedule, optimizer,
                                                                             statistics_of(options));
}

}  // namespace cifar10
