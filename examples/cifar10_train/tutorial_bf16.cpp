// SPDX-License-Identifier: Apache-2.0
#include "cifar10_net.hpp"
#include "models.hpp"
#include "run_on_host.hpp"

namespace cifar10 {

namespace {

struct Cifar10NetBf16 : InPrecision<MixedBFloat16, Cifar10Net> {};

}  // namespace

int run_tutorial_bf16(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer) {
    return run_on_host<Cifar10NetBf16, Cifar10Loss, TutorialDistortions, CentralCrop>(options, images, schedule, optimizer);
}

}  // namespace cifar10
