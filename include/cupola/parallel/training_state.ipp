// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/parallel/training_state.hpp.
#pragma once

#include <cupola/parallel/training_state.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

CUPOLA_DECL bool may_be_same_tensor(std::string_view a, std::string_view b) {
    const auto without_number = [](std::string_view name) {
        const std::size_t digits = std::min(name.size(), name.find_first_not_of("0123456789"));
        const bool numbered =
            digits > 0 && (digits == name.size() || (name[digits] == '.' && name.rfind('.') == digits));
        return numbered ? name.substr(digits) : name;
    };
    return without_number(a) == without_number(b);
}

CUPOLA_DECL void require_extents_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given) {
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

CUPOLA_DECL void require_tensors_of(std::span<const LayerInfo> layers, std::span<const StateTensor> given) {
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

CUPOLA_DECL void require_loss_scale(const LossScaleState& state, std::int64_t step) {
    constexpr float smallest = 0x1p-126F, largest = 0x1p127F;
    require(state.scale >= smallest && state.scale <= largest,
            "the loss scale of a state must be from 2^-126 to 2^127, not ", state.scale);
    require(state.good_steps >= 0, "a state has ", state.good_steps, " steps since its loss scale changed");
    require(state.skipped_steps >= 0 && state.skipped_steps <= step, "a state of step ", step, " has ",
            state.skipped_steps, " skipped steps");
}

CUPOLA_DECL void check_for_resuming(const TrainingState& state, FunctionRef<void()> checks) {
    if (state.file.empty()) return checks();
    try {
        checks();
    } catch (const InvalidArgument& error) {
        throw DataError(text(state.file, " cannot be resumed from: ", error.what()));
    }
}

CUPOLA_DECL void require_states(std::span<const std::string> names, std::span<const OptimizerState> states) {
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

}  // namespace impl

CUPOLA_DECL std::vector<StateTensor> state_tensors(std::span<const LayerInfo> layers) {
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

CUPOLA_DECL std::vector<float> parameters_in_layout(std::span<const LayerInfo> layers, const TrainingState& state,
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

CUPOLA_DECL std::string non_finite_part(std::span<const LayerInfo> layers, const TrainingState& state) {
    std::string found = impl::non_finite_arena(layers, state);
    for (std::size_t r = 0; found.empty() && r < state.replicas.size(); ++r) {
        found = impl::non_finite_arena(layers, state.replicas[r]);
        if (!found.empty()) found = text("replica ", r, "'s ", found);
    }
    for (const OptimizerState& kept : state.centre_optimizer) {
        if (!found.empty()) break;
        found = non_finite_parameter(layers, kept.values);
        if (found.empty() && impl::is_never_negative(kept.name)) found = negative_parameter(layers, kept.values);
        if (!found.empty()) found = text("outer ", kept.name, " of ", found);
    }
    if (!found.empty()) return found;
    found = invalid_buffer(layers, state.buffers);
    return found.empty() ? found : text("running statistic ", found);
}

}}  // namespace cupola::CUPOLA_ABI
