// SPDX-License-Identifier: Apache-2.0
#include <cupola/models/resnet.hpp>

#include "models.hpp"
#include "training_run.hpp"

namespace cifar10 {

namespace {

/// Decay of every parameter, as TensorFlow's estimator has it. Eleven classes: the ten and a spare.
using ResNetLoss = LossCollection<CrossEntropy<11>, DecayOfEverything<2e-4>>;

template <class Statistics>
int run_with(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer) {
    return run<ResNet<44>, ResNetLoss, Statistics, PadCropFlip, ScaledPixels>(options, images, schedule, optimizer);
}

}  // namespace

int run_resnet(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer) {
    if (options.bn_stats == "first") return run_with<FirstReplica>(options, images, schedule, optimizer);
    if (options.bn_stats == "last") return run_with<LastReplica>(options, images, schedule, optimizer);
    if (options.bn_stats == "all") return run_with<AllReplicas>(options, images, schedule, optimizer);
    if (options.bn_stats == "merged") return run_with<Merged>(options, images, schedule, optimizer);
    require(options.bn_stats == "synchronized", "--bn-stats is first, last, all, merged or synchronized, not ", options.bn_stats);
    return run_with<Synchronized>(options, images, schedule, optimizer);
}

}  // namespace cifar10
