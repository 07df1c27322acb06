// SPDX-License-Identifier: Apache-2.0
//
// --model resnet with the policy that --bn-stats names.
#pragma once

#include <string>
#include <string_view>

#include "training_run.hpp"

namespace cifar10 {

/// Decay of every parameter, as TensorFlow's estimator has it. Eleven classes: the ten and a spare.
using ResNetLoss = LossCollection<CrossEntropy<11>, DecayOfEverything<2e-4>>;

/// The policy that --bn-stats names, chosen when the program runs, so that they are one training to the compiler. Not
/// Synchronized: its forward and backward passes are others.
struct NamedStatistics {
    static constexpr std::string_view name = "as --bn-stats says";
    static constexpr bool synchronized = false;
    void (*take)(const StatisticsUpdate&) = nullptr;

    void update(const StatisticsUpdate& u) const { take(u); }

    /// The policy `Policy`.
    template <class Policy>
    static NamedStatistics of() {
        return {[](const StatisticsUpdate& u) { Policy{}.update(u); }};
    }
};

template <class Net>
int run_resnet_as(const TrainOptions& options, const ImageData& images, const Schedule& schedule, const std::string& optimizer) {
    const auto with = [&]<class Statistics>(const Statistics& statistics) {
        return run<Net, ResNetLoss, Statistics, PadCropFlip, ScaledPixels>(options, images, schedule, optimizer, statistics);
    };
    const std::string& name = options.bn_stats;
    if (name == Synchronized::name) return with(Synchronized{});
    if (name == FirstReplica::name) return with(NamedStatistics::of<FirstReplica>());
    if (name == LastReplica::name) return with(NamedStatistics::of<LastReplica>());
    if (name == AllReplicas::name) return with(NamedStatistics::of<AllReplicas>());
    require(name == Merged::name, "--bn-stats is first, last, all, merged or synchronized, not ", name);
    return with(NamedStatistics::of<Merged>());
}

}  // namespace cifar10
