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

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/optim/parameter_group.ipp>
#endif
