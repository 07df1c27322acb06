// SPDX-License-Identifier: Apache-2.0
//
// WeightDecay<coefficient, "layer", ...>: coefficient / 2 times the sum of the squares of the named layers' weights
// (never of their biases), TensorFlow's l2_loss. Its gradient is coefficient * w. It counts in each replica's total,
// and therefore once in the average.
//
// WeightDecayAll<coefficient>: the same over every parameter, biases and batch normalisation's scales included, as
// TensorFlow's estimator for CIFAR-10 has it; one part of the loss, "weight_decay". Frozen parameters (net/frozen.hpp)
// do not count, and WeightDecay of a layer whose weights are frozen does not compile.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The error in the coefficient of a weight decay; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage coefficient_diagnostic(std::string_view type, double coefficient) {
    CompileTimeMessage message;
    if (!Number(coefficient).is_finite_float() || coefficient < 0)
        message << "the coefficient of " << type << " must be finite and at least 0";
    return message;
}

}  // namespace impl

template <Number coefficient, FixedString... layer_names>
struct WeightDecay {
    static constexpr double value = coefficient;
    static constexpr std::array<std::string_view, sizeof...(layer_names)> names{layer_names.view()...};

    static constexpr CompileTimeMessage diagnostic(std::span<const LayerInfo> layers) {
        CompileTimeMessage message = impl::coefficient_diagnostic("WeightDecay", coefficient);
        if (names.empty() && message.empty())
            message << "WeightDecay names no layer; name at least one, as in WeightDecay<0.004, 'local3'>";
        for (const std::string_view name : names) {
            bool found = false, frozen = false;
            for (const LayerInfo& layer : layers) {
                if (layer.name != name || layer.parameters.count == 0) continue;
                found = true;
                frozen = layer.frozen[0];
            }
            if (!found && message.empty()) {
                message << "WeightDecay names the layer " << name
                        << ", but the network has no layer of that name with weights";
            }
            if (frozen && message.empty()) {
                message << "WeightDecay names the layer " << name
                        << ", whose weights are frozen: leave it out, because they cannot decay";
            }
        }
        return message;
    }
};

template <Number coefficient>
struct WeightDecayAll {
    static constexpr double value = coefficient;
    static constexpr std::array<std::string_view, 0> names{};
    static constexpr bool of_every_parameter = true;

    static constexpr CompileTimeMessage diagnostic(std::span<const LayerInfo> layers) {
        CompileTimeMessage message = impl::coefficient_diagnostic("WeightDecayAll", coefficient);
        if (arena_elements(layers) == 0 && message.empty())
            message << "WeightDecayAll is given for a network without parameters";
        return message;
    }
};

}}  // namespace cupola::CUPOLA_ABI
