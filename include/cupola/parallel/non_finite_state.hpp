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

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Whether an optimiser's state of this name, one of PyTorch's, consists of squares or magnitudes: the step is divided
/// by a power of it.
[[nodiscard]] inline bool is_never_negative(std::string_view state_name) {
    return state_name == "exp_avg_sq" || state_name == "exp_inf" || state_name == "square_avg" || state_name == "sum";
}

/// The same for one replica's part of a state; `State` is TrainingState or ReplicaState.
template <class State>
[[nodiscard, gnu::cold]] std::string non_finite_arena(std::span<const LayerInfo> layers, const State& state) {
    std::string found = non_finite_parameter(layers, state.parameters);
    if (!found.empty()) return text("parameter ", found);
    if (!state.averages.empty()) found = non_finite_parameter(layers, state.averages);
    if (!found.empty()) return text("moving average of ", found);
    for (const OptimizerState& kept : state.optimizer) {
        found = non_finite_parameter(layers, kept.values);
        if (found.empty() && is_never_negative(kept.name)) found = negative_parameter(layers, kept.values);
        if (!found.empty()) return text(kept.name.empty() ? "optimiser's state" : kept.name, " of ", found);
    }
    return {};
}

}  // namespace impl

/// The first part of a state of the network `layers` that is infinite or not a number, or below 0 where it is a running
/// variance, or a mean of squares of the optimiser ("exp_avg_sq", "exp_inf", "square_avg", "sum"):
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

}}  // namespace cupola::CUPOLA_ABI
