// SPDX-License-Identifier: Apache-2.0
//
// The segments of a parameter arena that an optimiser distinguishes, with the factors of their parameter groups.
#pragma once

#include <cstddef>
#include <span>

#include <cupola/core/fixed_array.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/table.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/parameter_group.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The regularised parameters; their coefficients include the decay factors of their groups, 0 for a frozen group, so
/// that the reported loss and the gradient agree.
[[nodiscard, gnu::cold]] FixedArray<RegularizedParameter> regularized_in_groups(
    FixedArray<RegularizedParameter> regularized, std::span<const ParameterGroup> groups,
    std::span<const LayerInfo> layers);

/// One segment per parameter, with the coefficients of the regularisers and the factors of its group. A frozen group
/// has no segments: an update skips elements between segments.
[[nodiscard, gnu::cold]] FixedArray<Segment> segments_of(std::span<const LayerInfo> layers,
                                                         std::span<const RegularizedParameter> regularized,
                                                         std::span<const ParameterGroup> groups = {});

inline FixedArray<RegularizedParameter> regularized_in_groups(FixedArray<RegularizedParameter> regularized,
                                                              std::span<const ParameterGroup> groups,
                                                              std::span<const LayerInfo> layers) {
    if (groups.empty()) return regularized;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        for (std::size_t p = 0; p < layers[i].parameters.count; ++p) {
            const ParameterGroup* const group = group_of(groups, parameter_name(layers, i, p));
            if (group == nullptr) continue;
            for (RegularizedParameter& r : regularized) {
                if (r.offset == layers[i].offsets[p]) r.coefficient *= group->frozen ? 0.0 : group->decay;
            }
        }
    }
    return regularized;
}

inline FixedArray<Segment> segments_of(std::span<const LayerInfo> layers,
                                       std::span<const RegularizedParameter> regularized,
                                       std::span<const ParameterGroup> groups) {
    std::size_t count = 0;
    for (const LayerInfo& layer : layers) count += layer.parameters.count;
    FixedArray<Segment> segments(count);
    count = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            if (layer.frozen[p]) continue;
            const ParameterGroup* const group =
                groups.empty() ? nullptr : group_of(groups, parameter_name(layers, i, p));
            if (group != nullptr && group->frozen) continue;
            double l2 = 0;
            for (const RegularizedParameter& r : regularized) l2 += r.offset == layer.offsets[p] ? r.coefficient : 0.0;
            const Parameter& parameter = layer.parameters.list[p];
            const Shape& shape = parameter.shape;
            // A factor per channel of an image, [1, 1, channels], is a vector.
            const bool vector = parameter.layout == FileLayout::channels_first && shape.size() == shape.channels();
            Segment& segment = segments[count++];
            segment = {layer.offsets[p], shape.size(), l2, vector ? 1 : shape.rank};
            if (group == nullptr) continue;
            segment.rate_factor = group->rate;
            segment.decay_factor = group->decay;
        }
    }
    segments.keep_first(count);
    return segments;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
