// SPDX-License-Identifier: Apache-2.0
//
// What --model resnet trains with: its network in bfloat16, its loss, and the policy that --bn-stats names.
#pragma once

#include <string>
#include <string_view>

#include <cupola/cupola.hpp>
#include <cupola/models/resnet.hpp>

#include "options.hpp"

namespace cifar10 {

using namespace cupola;

struct ResNetBf16 : InPrecision<MixedBFloat16, ResNet<44>> {};

/// Decay of every parameter, as TensorFlow's estimator has it. Eleven classes: the ten and a spare.
using ResNetLoss = LossCollection<CrossEntropy<11>, WeightDecayAll<2e-4>>;

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

/// Throws InvalidArgument for a name that is none; for `synchronized`, which is a training of its own, there is nothing
/// here.
inline NamedStatistics statistics_of(const TrainOptions& options) {
    const std::string& name = options.bn_stats;
    if (name == FirstReplica::name) return NamedStatistics::of<FirstReplica>();
    if (name == LastReplica::name) return NamedStatistics::of<LastReplica>();
    if (name == AllReplicas::name) return NamedStatistics::of<AllReplicas>();
    require(name == Pooled::name, "--bn-stats is first, last, all, merged or synchronized, not ", name);
    return NamedStatistics::of<Pooled>();
}

}  // namespace cifar10
