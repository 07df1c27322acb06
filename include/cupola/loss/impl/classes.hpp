// SPDX-License-Identifier: Apache-2.0
//
// Shared by the cross-entropies of several classes: extents and messages.
#pragma once

#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The extents of the labels of one sample: 1, or those of the positions.
[[nodiscard]] constexpr Shape label_extents(const Shape& output) {
    if (output.rank < 2) return {1};
    Shape labels = output;
    labels.extents[--labels.rank] = 0;
    return labels;
}

/// The error in an output whose last extent is not the number of classes; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage classes_diagnostic(std::string_view loss, std::int64_t classes,
                                                              const Shape& output, std::int64_t least = 2) {
    CompileTimeMessage message;
    if (classes < least) {
        message << loss << "<" << classes
                << "> has too few classes: with one alone every prediction is certain, and with "
                << "none there is none";
    } else if (output.rank == 0 || output.channels() != classes) {
        message << loss << "<" << classes << "> expects an output of " << classes << ", or of " << classes
                << " channels at each position, but the network's is " << output;
    }
    return message;
}

void require_label_smoothing(float label_smoothing);

/// An option and its numbers, each in the fewest digits that represent it exactly: "class_weights 0.1 2".
[[nodiscard, gnu::cold]] std::string description_of_option(std::string_view name, std::span<const float> numbers);

/// The number of positions of an output.
[[nodiscard]] constexpr std::int64_t positions_of(const Shape& output) { return output.size() / output.channels(); }

inline void require_label_smoothing(float label_smoothing) {
    require(is_finite(label_smoothing) && label_smoothing >= 0.0F && label_smoothing < 1.0F,
            "label smoothing must be in [0, 1), not ", label_smoothing);
}
inline std::string description_of_option(std::string_view name, std::span<const float> numbers) {
    std::string result(name);
    for (const float number : numbers) {
        char digits[32];
        result += ' ';
        result.append(digits, std::to_chars(digits, digits + sizeof digits, number, std::chars_format::general).ptr);
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
