// SPDX-License-Identifier: Apache-2.0
//
// The segments of a parameter arena that an optimiser distinguishes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/table.hpp>
#include <cupola/optim/optimizer.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// One segment per parameter, with the coefficients of the regularisers.
[[nodiscard, gnu::cold]] inline std::vector<Segment> segments_of(std::span<const LayerInfo> layers,
                                                                 std::span<const RegularizedParameter> regularized) {
    std::vector<Segment> segments;
    for (const LayerInfo& layer : layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            double l2 = 0;
            for (const RegularizedParameter& r : regularized) l2 += r.offset == layer.offsets[p] ? r.coefficient : 0.0;
            const Shape& shape = layer.parameters.list[p].shape;
            segments.push_back({layer.offsets[p], shape.size(), l2, shape.rank});
        }
    }
    return segments;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
