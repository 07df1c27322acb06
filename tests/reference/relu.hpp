// SPDX-License-Identifier: Apache-2.0
//
// ReLU by plain loops in double.
#pragma once

#include <cstddef>

#include "compare.hpp"

namespace reference {

[[nodiscard]] inline Doubles relu(Doubles x) {
    for (double& value : x) value = value < 0 ? 0 : value;
    return x;
}

/// dy where y is positive, else 0. `y` is the output that the operation itself wrote: near zero its sign is a matter
/// of rounding, and backward has to agree with forward.
[[nodiscard]] inline Floats relu_mask(std::span<const float> y, std::span<const float> dy) {
    Floats result(dy.begin(), dy.end());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = y[i] > 0.0F ? dy[i] : 0.0F;
    return result;
}

}  // namespace reference
