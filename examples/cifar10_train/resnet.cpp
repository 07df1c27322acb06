// SPDX-License-Identifier: Apache-2.0
#include <cupola/models/resnet.hpp>

#include "models.hpp"
#include "run_on_host.hpp"

namespace cifar10 {

int run_resnet(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
               const std::string& optimizer) {
    return run_resnet_on_host<ResNet<44>>(options, images, schedule, optimizer);
}

}  // namespace cifar10
