// SPDX-License-Identifier: Apache-2.0
//
// ReLU and ReLU6 by plain loops in double.
#pragma once

#include <cstddef>

#include "compare.hpp"

namespace reference {

[[nodiscard]] inline Doubles relu(Doubles x) {
    for (double& value : x) value = value < 0 ? 0 : value;
    return x;
}

/// Where the derivative of ReLU6 is 0, too.
inline constexpr float most_of_relu6 = 6.0F;

/// dy where y is positive and not `most`, else 0. `y` is the output that the operation itself wrote: near zero its sign
/// is a matter of rounding, and backward has to agree with forward.
[[nodiscard]] inline Floats relu_mask(std::span<const float> y, std::span<const float> dy, float most = -1.0F) {
    Floats result(dy.begin(), dy.end());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = y[i] > 0.0F && y[i] != most ? dy[i] : 0.0F;
    return result;
}

/// y = max(x, 0) in place, and with `most` y = min(max(x, 0), most).
inline void apply_relu(Floats& x, float most = -1.0F) {
    for (float& value : x) value = value < 0.0F ? 0.0F : most > 0.0F && value > most ? most : value;
}

}  // namespace reference
