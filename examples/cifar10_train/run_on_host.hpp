// SPDX-License-Identifier: Apache-2.0
//
// A run on the processors of this machine, whose averaging is ConcatMean's.
#pragma once

#include <string>

#include <cupola/host.hpp>

#include "on_host.hpp"
#include "resnet_parts.hpp"
#include "training_run.hpp"

namespace cifar10 {

template <class Net, class Loss, class Augment, class Centre, class Statistics = FirstReplica>
int run_on_host(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                const std::string& optimizer, const Statistics& statistics = {}) {
    OnHost side(options);
    return run<Net, Loss, Augment, Centre>(options, images, schedule, optimizer, side, ConcatMean{}, statistics);
}

template <class Net>
int run_resnet_on_host(const TrainOptions& options, const ImageData& images, const Schedule& schedule,
                       const std::string& optimizer) {
    const auto with = [&](const auto& statistics) {
        return run_on_host<Net, ResNetLoss, RandomCropFlip, ScaledPixels>(options, images, schedule, optimizer,
                                                                          statistics);
    };
    if (options.bn_stats == Synchronized::name) return with(Synchronized{});
    return with(statistics_of(options));
}

}  // namespace cifar10
