// SPDX-License-Identifier: Apache-2.0
//
// The state of a training between two steps: everything that the next step depends on except the options and the data.
// `training.state()` copies it out, `training.restore(state)` puts it back, and io/checkpoint.hpp stores it in a file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One of an optimiser's state arenas: its `state_name`, and its values for the parameters that are trained, in the
/// layout of the network's parameter arena.
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

/// The state of one replica that has its own parameters; the members are as in TrainingState.
struct ReplicaState {
    std::vector<float> parameters{};
    std::vector<float> averages{};
    std::vector<OptimizerState> optimizer{};

    bool operator==(const ReplicaState&) const = default;
};

struct TrainingState {
    /// The number of the next step.
    std::int64_t step = 0;
    /// That of a dynamic loss scale; or, of a constant one, how many steps were skipped before, if any were.
    std::optional<LossScaleState> loss_scale{};
    /// In the layout of the network's parameter arena.
    std::vector<float> parameters{};
    /// The moving averages of the parameters that are trained, in the same layout; empty where none are kept.
    std::vector<float> averages{};
    /// In the optimiser's order.
    std::vector<OptimizerState> optimizer{};
    /// Batch normalisation's running statistics, in the layout of the network's buffer arena.
    std::vector<float> buffers{};
    /// Replicas 1, 2, and so on, where each replica has parameters of its own; `parameters`, `averages` and `optimizer`
    /// are then those of replica 0. Empty where the replicas share their parameters.
    std::vector<ReplicaState> other_replicas{};
    /// The contents of the arenas, in their order: the parameters, then the running statistics. `restore` compares them
    /// with its own network's. Empty in a state that is assembled by hand; only its arena sizes are compared.
    std::vector<StateTensor> tensors{};
};

/// The parameters and the running statistics of the network `Net::layers`, in the order of their arenas.
[[nodiscard, gnu::cold]] std::vector<StateTensor> state_tensors(std::span<const LayerInfo> layers);

/// The parameters of a state in the layout of the network `layers`, which may have other frozen parameters than the
/// state's; with `averages`, the moving averages of those that have one. A state without `tensors` is in the network's
/// layout. Throws InvalidArgument for a state of another network, and for arenas of other sizes.
[[nodiscard, gnu::cold]] std::vector<float> parameters_in_layout(std::span<const LayerInfo> layers,
                                                                 const TrainingState& state, bool averages);

namespace impl {

/// Whether two names of tensors may be of the same one. A layer without a name is called by its number, which a layer
/// without parameters changes, so any two numbers may be.
[[nodiscard, gnu::cold]] bool may_be_same_tensor(std::string_view a, std::string_view b);

/// Throws InvalidArgument unless the tensors of a state have the names and the extents of the network's.
[[gnu::cold]] void require_tensors_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given);

/// The same without a comparison of what is frozen.
[[gnu::cold]] void require_extents_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given);

/// Throws InvalidArgument unless a loss scale may have this state before `step`.
[[gnu::cold]] void require_loss_scale(const LossScaleState& state, std::int64_t step);

/// Throws InvalidArgument unless these are the states with the names of the optimiser's. Two optimisers may keep
/// equally many states with different meanings; the names distinguish them.
[[gnu::cold]] void require_states(std::span<const std::string> names, std::span<const OptimizerState> states);

#ifndef CUPOLA_OPS
CUPOLA_INLINE bool may_be_same_tensor(std::string_view a, std::string_view b) {
    const auto without_number = [](std::string_view name) {
        const std::size_t digits = std::min(name.size(), name.find_first_not_of("0123456789"));
        const bool numbered = digits > 0 && digits < name.size() && name[digits] == '.' && name.rfind('.') == digits;
        return numbered ? name.substr(digits) : name;
    };
    return without_number(a) == without_number(b);
}

CUPOLA_INLINE void require_extents_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given) {
    const std::vector<StateTensor> own = state_tensors(layers);
    for (std::size_t i = 0; i < given.size() || i < own.size(); ++i) {
        constexpr const char* other = "the state belongs to another network: ";
        require(i < given.size(), other, "it has no ", i < own.size() ? own[i].name : "", ", of ",
                to_string(i < own.size() ? own[i].shape : Shape{}));
        require(i < own.size(), other, "its ", given[i].name, " is ", to_string(given[i].shape),
                ", and this network has no such tensor");
        require(given[i].shape == own[i].shape, other, "its ", given[i].name, " is ", to_string(given[i].shape),
                ", and this network's ", own[i].name, " is ", to_string(own[i].shape));
        require(may_be_same_tensor(given[i].name, own[i].name), other, "its ", given[i].name,
                " is where this network has ", own[i].name, ", of the same extents");
    }
}

CUPOLA_INLINE void require_tensors_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given) {
    require_extents_of(layers, given);
    const std::vector<StateTensor> own = state_tensors(layers);
    for (std::size_t i = 0; i < own.size(); ++i) {
        const auto how = [](const StateTensor& tensor) { return tensor.frozen ? " is frozen" : " is trained"; };
        require(given[i].frozen == own[i].frozen, "the state belongs to a training with other frozen parameters: its ",
                given[i].name, how(given[i]), ", and this network's ", own[i].name, how(own[i]),
                "; the optimiser's state and the moving averages of another freezing cannot be continued, and "
                "load_parameters reads the parameters alone from a checkpoint");
    }
}

CUPOLA_INLINE void require_loss_scale(const LossScaleState& state, std::int64_t step) {
    constexpr float smallest = 0x1p-126F, largest = 0x1p127F;
    require(state.scale >= smallest && state.scale <= largest,
            "the loss scale of a state must be from 2^-126 to 2^127, not ", state.scale);
    require(state.good_steps >= 0, "a state has ", state.good_steps, " steps since its loss scale changed");
    require(state.skipped_steps >= 0 && state.skipped_steps <= step, "a state of step ", step, " has ",
            state.skipped_steps, " skipped steps");
}

CUPOLA_INLINE void require_states(std::span<const std::string> names, std::span<const OptimizerState> states) {
    const auto add = [](std::string& list, std::string_view name) { list += text(list.empty() ? "" : ", ", name); };
    std::string kept, given;
    for (const std::string& name : names) add(kept, name);
    for (const OptimizerState& state : states) add(given, state.name);
    const bool as_many = states.size() == names.size();
    require(as_many && kept == given, "this optimiser keeps ", kept.empty() ? "no state" : kept, ", and the state has ",
            states.empty()  ? "none"
            : given.empty() ? "one without a name"
                            : given);
}
#endif

}  // namespace impl

// Whether a training, or a network alone, can continue from a state. A NaN need not appear in any later loss, because
// max(NaN, 0) is 0 in a fused ReLU, so a state is searched for it when it is loaded.

namespace impl {

/// Whether an optimiser's state of this name, one of PyTorch's, consists of squares or magnitudes: the step is divided
/// by a power of it.
[[nodiscard]] inline bool is_never_negative(std::string_view state_name) {
    return state_name == "exp_avg_sq" || state_name == "exp_inf" || state_name == "square_avg" || state_name == "sum";
}

/// What non_finite_part() says of one replica's part of a state; `State` is TrainingState or ReplicaState.
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
CUPOLA_INLINE std::vector<StateTensor> state_tensors(std::span<const LayerInfo> layers) {
    std::vector<StateTensor> tensors;
    for (std::size_t r = 0; r < layers.size(); ++r) {
        for (std::size_t p = 0; p < layers[r].parameters.count; ++p)
            tensors.push_back({parameter_name(layers, r, p), layers[r].parameters.list[p].shape, layers[r].frozen[p]});
    }
    for (std::size_t r = 0; r < layers.size(); ++r) {
        for (std::size_t b = 0; b < layers[r].buffers.count; ++b)
            tensors.push_back({buffer_name(layers, r, b), layers[r].buffers.list[b].shape});
    }
    return tensors;
}

CUPOLA_INLINE std::vector<float> parameters_in_layout(std::span<const LayerInfo> layers, const TrainingState& state,
                                                      bool averages) {
    if (!state.tensors.empty()) impl::require_extents_of(layers, state.tensors);
    std::vector<LayerInfo> given(layers.begin(), layers.end());
    for (std::size_t i = 0, next = 0; !state.tensors.empty() && i < given.size(); ++i) {
        for (std::size_t p = 0; p < given[i].parameters.count; ++p) given[i].frozen[p] = state.tensors[next++].frozen;
    }
    lay_out_parameters(given);
    const auto elements = static_cast<std::size_t>(arena_elements(layers)),
               trained = static_cast<std::size_t>(trained_elements(given));
    require(state.parameters.size() == elements && (!averages || state.averages.size() == trained), "the state has ",
            state.parameters.size(), " elements of parameters and ", state.averages.size(),
            " of moving averages, and this network has ", elements, " and ", trained);
    std::vector<float> result(elements);
    for (std::size_t i = 0; i < given.size(); ++i) {
        for (std::size_t p = 0; p < given[i].parameters.count; ++p) {
            const std::vector<float>& from = averages && !given[i].frozen[p] ? state.averages : state.parameters;
            std::copy_n(from.begin() + given[i].offsets[p], given[i].parameters.list[p].shape.size(),
                        result.begin() + layers[i].offsets[p]);
        }
    }
    return result;
}

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
