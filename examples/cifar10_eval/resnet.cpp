// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/models/resnet.hpp>

#include "model_run.hpp"

namespace cifar10 {

Model resnet_model() { return {ResNet<44>::layers, &run_model<ResNet<44>, ScaledPixels>}; }

}  // namespace cifar10
