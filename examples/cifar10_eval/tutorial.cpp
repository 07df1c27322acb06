// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/augmentation.hpp>
#include <cupola/models/cifar10_net.hpp>

#include "model_run.hpp"

namespace cifar10 {

Model tutorial_model() { return {Cifar10Net::layers, &run_model<Cifar10Net, CenterCrop>}; }

}  // namespace cifar10
