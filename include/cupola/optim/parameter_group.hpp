// SPDX-License-Identifier: Apache-2.0
//
// ParameterGroup: factors of the learning rate and of the weight decay for the parameters whose names match a pattern
// (core/glob.hpp); a frozen group is not updated. A training has a list of them:
//
//   .groups = {{.pattern = "head.*"}, {.pattern = "*.bias", .rate = 2, .decay = 0}, {.pattern = "*", .rate = 0.1}}
//
// A parameter belongs to the first group whose pattern matches its full name, "conv1.weight"; here head.bias keeps the
// optimiser's rate and decay. A parameter that no pattern matches keeps them too.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct ParameterGroup {
    std::string pattern{};
    /// The factor of the optimiser's learning rate, at least 0.
    double rate = 1;
    /// The factor of the optimiser's weight decay and of the loss's WeightDecay, at least 0; the reported loss contains
    /// it.
    double decay = 1;
    /// Neither updated nor decayed; its gradient and its state exist nevertheless. Frozen<Net, "pattern"> of
    /// net/frozen.hpp saves their memory and their time too.
    bool frozen = false;

    bool operator==(const ParameterGroup&) const = default;
};

/// The group of a parameter, the first whose pattern matches its name; null if none does.
[[nodiscard]] const ParameterGroup* group_of(std::span<const ParameterGroup> groups, std::string_view name);

/// "head.*: rate x 1, decay x 1; *.bias: rate x 2, decay x 0; *: frozen", for the log and the checkpoint; empty without
/// groups.
[[nodiscard, gnu::cold]] std::string description_of(std::span<const ParameterGroup> groups);

/// Throws InvalidArgument for a factor that is below 0 or not finite; for a pattern that matches no trainable parameter
/// of the network `layers`, or only parameters of earlier groups; and where every trainable parameter is frozen.
[[gnu::cold]] void require_valid_groups(std::span<const ParameterGroup> groups, std::span<const LayerInfo> layers);

#ifndef CUPOLA_OPS

CUPOLA_INLINE const ParameterGroup* group_of(std::span<const ParameterGroup> groups, std::string_view name) {
    for (const ParameterGroup& group : groups) {
        if (glob_matches(group.pattern, name)) return &group;
    }
    return nullptr;
}

CUPOLA_INLINE std::string description_of(std::span<const ParameterGroup> groups) {
    std::string result;
    for (const ParameterGroup& group : groups) {
        result += text(result.empty() ? "" : "; ", group.pattern, ": ");
        result += group.frozen ? std::string("frozen")
                               : text("rate x ", exact_text(group.rate), ", decay x ", exact_text(group.decay));
    }
    return result;
}

CUPOLA_INLINE void require_valid_groups(std::span<const ParameterGroup> groups, std::span<const LayerInfo> layers) {
    if (groups.empty()) return;
    const auto for_each_name = [&](FunctionRef<void(const std::string&)> visit) {
        for (std::size_t layer = 0; layer < layers.size(); ++layer) {
            for (std::size_t p = 0; p < layers[layer].parameters.count; ++p)
                if (!layers[layer].frozen[p]) visit(parameter_name(layers, layer, p));
        }
    };
    bool trained = false;
    FixedArray<std::size_t> members(groups.size());
    for_each_name([&](const std::string& name) {
        const ParameterGroup* const group = group_of(groups, name);
        trained = trained || group == nullptr || !group->frozen;
        if (group != nullptr) ++members[static_cast<std::size_t>(group - groups.data())];
    });
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const ParameterGroup& group = groups[g];
        for (const auto& [what, factor] : {std::pair{"rate", group.rate}, std::pair{"decay", group.decay}}) {
            require(impl::is_finite(factor) && factor >= 0, "the ", what, " of the parameter group '", group.pattern,
                    "' must be a factor of at least 0, not ", factor);
        }
        if (members[g] > 0) continue;
        bool matches = false;
        std::string all;
        for_each_name([&](const std::string& name) {
            matches = matches || glob_matches(group.pattern, name);
            all += text(all.empty() ? "" : ", ", name);
        });
        require(matches, "the parameter group '", group.pattern,
                "' matches none of the parameters that are trained: ", all);
        require(false, "the parameter group '", group.pattern,
                "' matches only parameters of the groups before it, and the first group that matches counts");
    }
    require(trained,
            "the parameter groups freeze every parameter, so there is nothing to train: ", description_of(groups));
}

#endif

}}  // namespace cupola::CUPOLA_ABI
