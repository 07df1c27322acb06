// SPDX-License-Identifier: Apache-2.0
//
// The options of a training: `DataParallel<...> training({.replicas = 4, .devices = 2, .batch_size = 128})`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <cupola/core/loss_scale.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/pipeline/cut_choice.hpp>
#include <cupola/optim/moving_average.hpp>
#include <cupola/optim/parameter_group.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// An initialiser for the parameter with a full name; it replaces the initialiser of the layer's type.
struct NamedInitializer {
    std::string parameter;
    Initializer initializer;
};

template <class Loss, class Optimizer, class Averaging, class DeviceOptions, class Statistics>
struct TrainingOptions {
    int replicas = 1;
    /// At most the replicas; for a network that is cut into parts (net/pipeline/split.hpp), that many groups at most,
    /// each of as many devices as there are parts.
    int devices = 1;
    DeviceOptions device{};
    /// The number of samples of one replica per step, and the other batch sizes that will occur (an epoch's short last
    /// batch).
    std::int64_t batch_size = 128;
    std::vector<std::int64_t> other_batch_sizes{};
    /// The largest batch of `evaluate` and `predict`, if that is more than batch_size: their memory is planned together
    /// with the training's.
    std::int64_t evaluation_batch_size = 0;
    /// The number of batches per replica whose gradients a step adds before the replicas are averaged: step s takes the
    /// batches from number s * gradient_accumulation_steps on.
    int gradient_accumulation_steps = 1;
    std::uint64_t seed = 0;
    CollectionOf<Loss> loss{};
    Optimizer optimizer{};
    /// Factors of learning rate and decay, or frozen, by patterns of the parameters' names; the first matching pattern
    /// applies.
    std::vector<ParameterGroup> groups{};
    Averaging averaging{};
    /// How replicas share batch normalisation's running statistics.
    Statistics statistics{};
    /// The moving average of all parameters, updated after each update; none by default.
    MovingAverage moving_average{};
    /// Replaces the loss scale of the network's precision: see core/loss_scale.hpp.
    std::optional<LossScale> loss_scale{};
    /// Whether a step in which no sample counts, because each has the loss's ignored label or a weight of 0, makes no
    /// update and is reported as skipped; otherwise it throws InvalidArgument. No effect for a loss without weights.
    bool skip_steps_without_labels = false;
    /// The number of steps between two checks, which compare the devices' parameters by a 64-bit hash, and end the
    /// training with an error if parameters or running statistics are not finite, which need not appear in any loss; 0
    /// for never.
    int check_every = 50;
    std::vector<NamedInitializer> initializers{};
    /// The parts of a ChosenSplit (net/pipeline/chosen_split.hpp), and their timetable.
    CutChoice cut{};
};

}}  // namespace cupola::CUPOLA_ABI
