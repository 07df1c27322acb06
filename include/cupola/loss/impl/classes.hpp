// SPDX-License-Identifier: Apache-2.0
//
// What the cross-entropies of several classes share: their extents, messages and weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

/// The extents of the labels of one sample: 1, or those of the positions.
[[nodiscard]] constexpr Shape label_extents(const Shape& output) {
    if (output.rank < 2) return {1};
    Shape labels = output;
    labels.extents[--labels.rank] = 0;
    return labels;
}

/// What is wrong with an output whose last extent is not the number of classes, or nothing.
[[nodiscard]] constexpr CompileTimeMessage classes_diagnostic(std::string_view loss, std::int64_t classes,
                                                              const Shape& output) {
    CompileTimeMessage message;
    if (output.rank == 0 || output.channels() != classes) {
        message << loss << "<" << classes << "> expects an output of " << classes << ", or of " << classes
                << " channels at each position, but the network's is " << output;
    }
    return message;
}

/// Weights of classes that are all 1.
template <std::size_t classes>
[[nodiscard]] constexpr std::array<float, classes> equal_weights() {
    std::array<float, classes> weights{};
    weights.fill(1.0F);
    return weights;
}

inline void require_label_smoothing(float label_smoothing) {
    require(label_smoothing >= 0.0F && label_smoothing < 1.0F, "label smoothing must be in [0, 1), not ",
            label_smoothing);
}

/// The number of positions of an output.
[[nodiscard]] constexpr std::int64_t positions_of(const Shape& output) { return output.size() / output.channels(); }

}  // namespace cupola::inline CUPOLA_ABI::impl
