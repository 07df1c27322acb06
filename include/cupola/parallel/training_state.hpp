// SPDX-License-Identifier: Apache-2.0
//
// What a training is made of between two steps: everything that the next step depends on beside the options and the
// data. `training.state()` copies it out, `training.restore(state)` puts it back, and io/checkpoint.hpp keeps it in a
// file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

/// One of an optimiser's state arenas: its `state_name`, and the values in the layout of the network's parameter arena.
struct OptimizerState {
    std::string name{};
    std::vector<float> values{};

    bool operator==(const OptimizerState&) const = default;
};

struct TrainingState {
    /// The step that comes next.
    std::int64_t step = 0;
    /// In the layout of the network's parameter arena.
    std::vector<float> parameters{};
    /// The parameters' moving averages, in the same layout; empty where none are kept.
    std::vector<float> averages{};
    /// In the optimiser's order.
    std::vector<OptimizerState> optimizer{};
    /// Batch normalisation's running statistics, in the layout of the network's buffer arena.
    std::vector<float> buffers{};
};

namespace impl {

/// Throws InvalidArgument unless these are the states that `optimizer` keeps. Two optimisers may keep as many that mean
/// other things: they are told apart by their names.
template <class Optimizer>
[[gnu::cold]] void require_states_of(const Optimizer& optimizer, std::span<const OptimizerState> states) {
    const auto add = [](std::string& list, std::string_view name) { list += text(list.empty() ? "" : ", ", name); };
    std::string kept, given;
    for (int arena = 0; arena < optimizer.state_arenas(); ++arena) add(kept, optimizer.state_name(arena));
    for (const OptimizerState& state : states) add(given, state.name);
    const bool as_many = states.size() == static_cast<std::size_t>(optimizer.state_arenas());
    require(as_many && kept == given, "this optimiser keeps ", kept.empty() ? "no state" : kept, ", and the state has ",
            states.empty()  ? "none"
            : given.empty() ? "one without a name"
                            : given);
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
