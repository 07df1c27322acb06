// SPDX-License-Identifier: Apache-2.0
//
// What a network computes, as a text: a line for the Input and one per layer, with the layer's description
// (layers/layer_description.hpp), the extents of its output, and the values that it reads where these are not the one
// before it. A checkpoint contains it, so that a different activation, which has no parameters to compare, is detected.
//
//   Input 24 x 24 x 3
//   Conv2d 64, 5 x 5: 24 x 24 x 64
//   ReLU: 24 x 24 x 64
//   Dropout 0.5: 24 x 24 x 64 (in training)
//
// The text is the same for every compiler, device and precision, and does not say what is frozen. Names are not in it:
// those of parameters are the names of tensors. A user's own layer without a description appears by its type's name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

[[nodiscard, gnu::cold]] std::string network_description(std::span<const LayerInfo> layers);

/// The part of a description that matters in prediction: without the lines of layers that do nothing in evaluation, and
/// without the text in parentheses that end with "in training".
[[nodiscard, gnu::cold]] std::string description_in_prediction(std::string_view description);

namespace impl {

inline constexpr std::string_view training_mark = " (in training)", training_option = " in training)";

}  // namespace impl

inline std::string network_description(std::span<const LayerInfo> layers) {
    const auto typed = [](ElementType type) {
        return type == ElementType::float32 ? std::string() : text(' ', to_string(type));
    };
    const LayerInfo& first = layers.front();
    std::string result = text("Input ", to_string(first.input), typed(first.column_type));
    // The line of each value. A layer that does nothing in evaluation passes on the value that it reads, so that the
    // lines of the others do not depend on it.
    std::vector<std::size_t> lines(layers.size() + 1);
    std::size_t last = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        const bool only_in_training = layer.traits.only_in_training;
        result += text('\n', layer.description, layer.column.empty() ? std::string() : typed(layer.column_type), ": ",
                       to_string(layer.output));
        if (!layer.column.empty()) {
            result += text(", column ", layer.column);
        } else if (lines[layer.reads] != lines[i]) {
            result += text(", of ", lines[layer.reads]);
        }
        if (layer.also_reads != no_value) result += text(", and ", lines[layer.also_reads]);
        if (layer.tied_to != no_layer) result += text(", tied to ", lines[layer.tied_to + 1]);
        lines[i + 1] = only_in_training ? lines[layer.reads] : ++last;
        if (only_in_training) result += impl::training_mark;
    }
    return result;
}

inline std::string description_in_prediction(std::string_view description) {
    std::string result;
    while (!description.empty()) {
        const std::string_view line = description.substr(0, description.find('\n'));
        if (!line.ends_with(impl::training_mark)) {
            const std::size_t end = line.find(impl::training_option), begin = line.rfind(" (", end);
            const bool has_option = end != line.npos && begin != line.npos;
            result += text(result.empty() ? "" : "\n", line.substr(0, has_option ? begin : line.size()),
                           has_option ? line.substr(end + impl::training_option.size()) : std::string_view());
        }
        description.remove_prefix(line.size() == description.size() ? line.size() : line.size() + 1);
    }
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
