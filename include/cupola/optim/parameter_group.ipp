// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/optim/parameter_group.hpp.
#pragma once

#include <vector>

#include <cupola/core/listed.hpp>
#include <cupola/optim/parameter_group.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL const ParameterGroup* group_of(std::span<const ParameterGroup> groups, std::string_view name) {
    for (const ParameterGroup& group : groups) {
        if (glob_matches(group.pattern, name)) return &group;
    }
    return nullptr;
}

CUPOLA_DECL std::string description_of(std::span<const ParameterGroup> groups) {
    std::string result;
    for (const ParameterGroup& group : groups) {
        result += text(result.empty() ? "" : "; ", group.pattern, ": ");
        result += group.frozen ? std::string("frozen")
                               : text("rate x ", exact_text(group.rate), ", decay x ", exact_text(group.decay));
    }
    return result;
}

CUPOLA_DECL void require_valid_groups(std::span<const ParameterGroup> groups, std::span<const LayerInfo> layers) {
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
        std::vector<std::string> all;
        for_each_name([&](const std::string& name) {
            matches = matches || glob_matches(group.pattern, name);
            all.push_back(name);
        });
        require(matches, "the parameter group '", group.pattern,
                "' matches none of the parameters that are trained: ", listed(all));
        require(false, "the parameter group '", group.pattern,
                "' matches only parameters of the groups before it, and the first group that matches counts");
    }
    require(trained,
            "the parameter groups freeze every parameter, so there is nothing to train: ", description_of(groups));
}

}}  // namespace cupola::CUPOLA_ABI
