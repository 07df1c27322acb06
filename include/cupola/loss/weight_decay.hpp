// SPDX-License-Identifier: Apache-2.0
//
// WeightDecay<coefficient, "layer", ...>: coefficient / 2 times the sum of the squares of the named layers' weights
// (never of their biases), TensorFlow's l2_loss. Its gradient is coefficient * w: each replica's total has it, so the
// average has it once.
//
// DecayOfEverything<coefficient>: the same over every parameter, biases and batch normalisation's scales included, as
// TensorFlow's estimator for CIFAR-10 has it; one part of the loss, "weight_decay".
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <cupola/core/fixed_string.hpp>
#include <cupola/core/sentence.hpp>
#include <cupola/net/table.hpp>

namespace cupola::inline CUPOLA_ABI {

template <Number coefficient, FixedString... layers>
struct WeightDecay {
    static constexpr double value = coefficient;
    static constexpr std::array<std::string_view, sizeof...(layers)> names{layers.view()...};

    static constexpr Sentence mistake(std::span<const Row> rows) {
        Sentence sentence;
        if (names.empty()) sentence << "WeightDecay names no layer; WeightDecay<0.004, 'local3'> would name one";
        for (const std::string_view name : names) {
            bool found = false;
            for (const Row& row : rows) found = found || (row.name == name && row.parameters.count > 0);
            if (!found && sentence.empty()) {
                sentence << "WeightDecay names the layer " << name
                         << ", and the network has none of that name with weights";
            }
        }
        return sentence;
    }
};

template <Number coefficient>
struct DecayOfEverything {
    static constexpr double value = coefficient;
    static constexpr std::array<std::string_view, 0> names{};
    static constexpr bool of_every_parameter = true;

    static constexpr Sentence mistake(std::span<const Row> rows) {
        Sentence sentence;
        if (arena_elements(rows) == 0) sentence << "DecayOfEverything is given for a network without parameters";
        return sentence;
    }
};

}  // namespace cupola::inline CUPOLA_ABI
