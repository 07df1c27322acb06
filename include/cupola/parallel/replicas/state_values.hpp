// SPDX-License-Identifier: Apache-2.0
//
// TrainingState: the state on which the next step of a training depends. Its checks are in parallel/training_state.hpp,
// and state() and restore() of a training are implemented in parallel/state_transfer.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/loss_scale.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One of an optimiser's state arenas: its `state_name`, and its values for the trained parameters, in the layout of
/// the network's parameter arena.
struct OptimizerState {
    std::string name{};
    std::vector<float> values{};

    bool operator==(const OptimizerState&) const = default;
};

/// A parameter or a running statistic of a network: its full name, "conv1.weight", and its extents.
struct StateTensor {
    std::string name{};
    Shape shape{};
    /// A parameter that is not trained: net/frozen.hpp.
    bool frozen = false;

    bool operator==(const StateTensor&) const = default;
};

/// The state of one replica that has its own parameters; the members are those of TrainingState.
struct ReplicaState {
    std::vector<float> parameters{};
    std::vector<float> averages{};
    std::vector<OptimizerState> optimizer{};

    bool operator==(const ReplicaState&) const = default;
};

struct TrainingState {
    /// The number of the next step.
    std::int64_t step = 0;
    /// The state of a dynamic loss scale; for a constant one, the number of skipped steps, if there were any.
    std::optional<LossScaleState> loss_scale{};
    /// In the layout of the network's parameter arena.
    std::vector<float> parameters{};
    /// The moving averages of the trained parameters, in the same layout; empty if none are kept.
    std::vector<float> averages{};
    /// In the optimiser's order.
    std::vector<OptimizerState> optimizer{};
    /// Batch normalisation's running statistics, in the layout of the network's buffer arena.
    std::vector<float> buffers{};
    /// All replicas, if they have parameters of their own and agree on a centre (parallel/kinds/). `parameters` and
    /// `averages` are then the centre's, and `optimizer` is empty. With the state of the optimiser that moves the
    /// centre and the mean that moves it later, and the samples since the last agreement where they are its weights:
    /// those of all replicas, for each fragment of the parameters.
    std::vector<ReplicaState> replicas{};
    std::vector<OptimizerState> centre_optimizer{};
    std::vector<std::int64_t> samples_since{};
    /// "Periodic every 16 steps, the centre by sgd": the rule by which those replicas agree. Empty in a state that is
    /// assembled by hand.
    std::string rule{};
    /// The contents of the arenas, in their order: the parameters, then the running statistics. `restore` compares them
    /// with its own network's. Empty in a state that is assembled by hand; only its arena sizes are compared.
    std::vector<StateTensor> tensors{};
    /// The file that it was read from, which errors of `restore` name; empty for the state of a training.
    std::string file{};
};

}}  // namespace cupola::CUPOLA_ABI
