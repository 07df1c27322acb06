// SPDX-License-Identifier: Apache-2.0
//
// Initial values of a network's parameters, for the tests of models.
#pragma once

#include "../test.hpp"

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <cupola/layers/initializer.hpp>
#include <cupola/net/table.hpp>

namespace initial {

/// The initial values of the parameter of that full name, for the seed 1.
[[nodiscard]] inline std::vector<float> values_of(std::span<const LayerInfo> layers, std::string_view name) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
            if (parameter_name(layers, i, p) != name) continue;
            const Parameter& parameter = layers[i].parameters.list[p];
            std::vector<float> values(static_cast<std::size_t>(parameter.shape.size()));
            initialize(values, parameter.initializer, parameter.fan_in, parameter.fan_out, 1,
                       static_cast<std::uint32_t>(i));
            return values;
        }
    }
    return {};
}

/// The root of the mean square: the deviation from the mean 0.
[[nodiscard]] inline double deviation(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace initial
