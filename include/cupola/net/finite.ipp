// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/net/finite.hpp.
#pragma once

#include <cupola/net/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

CUPOLA_DECL std::span<const float> part_of_arena(std::span<const float> arena, std::int64_t offset,
                                                 const Shape& shape) {
    return arena.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(shape.size()));
}

}  // namespace impl

namespace impl {

CUPOLA_DECL std::string parameter_at(std::span<const LayerInfo> layers, std::int64_t element) {
    std::string name;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        for (std::size_t p = 0; p < layers[layer].parameters.count; ++p) {
            if (layers[layer].offsets[p] <= element) name = parameter_name(layers, layer, p);
        }
    }
    return name;
}

/// The first text that is not empty of those that `describe(name, shape, values)` returns for the parameters in an
/// arena.
template <class Describe>
[[nodiscard]] std::string first_parameter(std::span<const LayerInfo> layers, std::span<const float> arena,
                                          const Describe& describe) {
    for (std::size_t row = 0; row < layers.size(); ++row) {
        for (std::size_t p = 0; p < layers[row].parameters.count; ++p) {
            if (layers[row].offsets[p] >= static_cast<std::int64_t>(arena.size())) continue;
            const Shape& shape = layers[row].parameters.list[p].shape;
            std::string found = describe(shape, part_of_arena(arena, layers[row].offsets[p], shape),
                                         [&] { return parameter_name(layers, row, p); });
            if (!found.empty()) return found;
        }
    }
    return {};
}

}  // namespace impl

CUPOLA_DECL std::string non_finite_parameter(std::span<const LayerInfo> layers, std::span<const float> arena) {
    return impl::first_parameter(
        layers, arena, [](const Shape& shape, std::span<const float> values, const auto& name) -> std::string {
            return all_finite(values) ? std::string() : non_finite_element(name(), shape, values);
        });
}

CUPOLA_DECL std::string negative_parameter(std::span<const LayerInfo> layers, std::span<const float> arena) {
    return impl::first_parameter(
        layers, arena, [](const Shape& shape, std::span<const float> values, const auto& name) -> std::string {
            const auto found = std::ranges::find_if(values, [](float value) { return value < 0; });
            if (found == values.end()) return {};
            return impl::element_text(name(), shape, static_cast<std::size_t>(found - values.begin()), *found);
        });
}

CUPOLA_DECL std::string invalid_buffer(std::span<const LayerInfo> layers, std::span<const float> buffers) {
    for (std::size_t row = 0; row < layers.size(); ++row) {
        for (std::size_t b = 0; b < layers[row].buffers.count; ++b) {
            const Shape& shape = layers[row].buffers.list[b].shape;
            const std::span<const float> values = impl::part_of_arena(buffers, layers[row].buffer_offsets[b], shape);
            if (!all_finite(values)) return non_finite_element(buffer_name(layers, row, b), shape, values);
        }
    }
    for (const RunningStatistics& layer : running_statistics(layers)) {
        const Shape shape{layer.channels};
        const std::span<const float> variances = impl::part_of_arena(buffers, layer.variance, shape);
        for (std::size_t c = 0; c < variances.size(); ++c) {
            if (variances[c] < 0)
                return impl::element_text(buffer_name(layers, layer.layer, 1), shape, c, variances[c]);
        }
    }
    return {};
}

}}  // namespace cupola::CUPOLA_ABI
