// SPDX-License-Identifier: Apache-2.0
//
// Whether a training, or a network alone, can continue from a state. A NaN need not appear in any later loss, because
// max(NaN, 0) is 0 in a fused ReLU, so a state is searched for it when it is loaded.
#pragma once

#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/net/non_finite.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// The same for one replica's part of a state; `State` is TrainingState or ReplicaState.
template <class State>
[[nodiscard, gnu::cold]] std::string non_finite_arena(std::span<const LayerInfo> layers, const State& state) {
    std::string found = non_finite_parameter(layers, state.parameters);
    if (!found.empty()) return text("parameter ", found);
    if (!state.averages.empty()) found = non_finite_parameter(layers, state.averages);
    if (!found.empty()) return text("moving average of ", found);
    for (const OptimizerState& kept : state.optimizer) {
        found = non_finite_parameter(layers, kept.values);
        if (!found.empty()) return text(kept.name.empty() ? "optimiser's state" : kept.name, " of ", found);
    }
    return {};
}

}  // namespace impl

/// The first part of a state of the network `layers` that is infinite, not a number, or a running variance below 0:
/// "parameter conv2.bias is inf at [0]", "momentum_buffer of conv2.bias is nan at [3]". Empty if there is none. The
/// arenas have the network's sizes.
[[nodiscard, gnu::cold]] std::string non_finite_part(std::span<const LayerInfo> layers, const TrainingState& state);

#ifndef CUPOLA_OPS

CUPOLA_INLINE std::string non_finite_part(std::span<const LayerInfo> layers, const TrainingState& state) {
    std::string found = impl::non_finite_arena(layers, state);
    for (std::size_t r = 0; found.empty() && r < state.other_replicas.size(); ++r) {
        found = impl::non_finite_arena(layers, state.other_replicas[r]);
        if (!found.empty()) found = text("replica ", r + 1, "'s ", found);
    }
    if (!found.empty()) return found;
    found = invalid_buffer(layers, state.buffers);
    return found.empty() ? found : text("running statistic ", found);
}

#endif

}  // namespace cupola::inline CUPOLA_ABI
