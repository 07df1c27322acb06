// SPDX-License-Identifier: Apache-2.0
//
// The state of a training between two steps: everything on which the next step depends except the options and the data.
// `training.state()` copies it, `training.restore(state)` restores it, and io/checkpoint.hpp stores it in a file. A
// state that does not fit the training is an InvalidArgument, and a DataError if it was read from a file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/replicas/state_values.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The largest step of a state, and the largest number of samples since an agreement: what a training counts from them
/// on, and the step times its replicas, has a place in 64 bits.
inline constexpr std::int64_t largest_count = std::int64_t{1} << 40;

}  // namespace impl

/// The parameters and the running statistics of the network `Net::layers`, in the order of their arenas.
[[nodiscard, gnu::cold]] std::vector<StateTensor> state_tensors(std::span<const LayerInfo> layers);

/// The parameters of a state in the layout of the network `layers`, whose frozen parameters may differ from the
/// state's; with `averages`, the moving averages of those that have one. A state without `tensors` is in the network's
/// layout. Throws InvalidArgument for a state of another network, and for arenas of other sizes.
[[nodiscard, gnu::cold]] std::vector<float> parameters_in_layout(std::span<const LayerInfo> layers,
                                                                 const TrainingState& state, bool averages);

namespace impl {

/// Whether two tensor names may refer to the same tensor. A layer without a name is identified by its number, which
/// inserting a layer without parameters changes, so any two numbers may match.
[[nodiscard, gnu::cold]] bool may_be_same_tensor(std::string_view a, std::string_view b);

/// Throws InvalidArgument unless the tensors of a state have the names and the extents of the network's.
[[gnu::cold]] void require_tensors_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given);

/// The same, but which parameters are frozen is not compared.
[[gnu::cold]] void require_extents_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given);

/// Throws InvalidArgument unless a loss scale may have this state before `step`.
[[gnu::cold]] void require_loss_scale(const LossScaleState& state, std::int64_t step);

/// Makes the checks by which a training refuses a state. An InvalidArgument about one that was read from a file becomes
/// a DataError that names the file.
[[gnu::cold]] void check_for_resuming(const TrainingState& state, FunctionRef<void()> checks);

/// Throws InvalidArgument unless the states have the names of the optimiser's. Two optimisers may keep the same number
/// of states with different meanings; the names distinguish them.
[[gnu::cold]] void require_states(std::span<const std::string> names, std::span<const OptimizerState> states);

}  // namespace impl

// Checks whether a training, or a network alone, can continue from a state. A NaN need not appear in any later loss,
// because max(NaN, 0) is 0 in a fused ReLU, so a state is searched for it when it is loaded.

namespace impl {

/// Whether an optimiser's state with this name, one of PyTorch's, consists of squares or magnitudes: the step is
/// divided by a power of it.
[[nodiscard]] inline bool is_never_negative(std::string_view state_name) {
    return state_name == "exp_avg_sq" || state_name == "exp_inf" || state_name == "square_avg" || state_name == "sum";
}

/// The result of non_finite_part() for one replica's part of a state; `State` is TrainingState or ReplicaState.
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

/// Describes the first part of a state of the network `layers` that is infinite or NaN, or that is negative although it
/// is a running variance or a mean of squares of the optimiser ("exp_avg_sq", "exp_inf", "square_avg", "sum"):
/// "parameter conv2.bias is inf at [0]", "momentum_buffer of conv2.bias is nan at [3]". Empty if there is none. The
/// arenas must have the network's sizes.
[[nodiscard, gnu::cold]] std::string non_finite_part(std::span<const LayerInfo> layers, const TrainingState& state);

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/parallel/training_state.ipp>
#endif
