// SPDX-License-Identifier: Apache-2.0
//
// The parts of a parameter arena that an optimiser tells apart.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <cupola/loss/loss_collection.hpp>
#include <cupola/net/table.hpp>
#include <cupola/optim/optimizer.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// One segment a parameter, with what the regularisers add to its gradient.
[[nodiscard, gnu::cold]] inline std::vector<Segment> segments_of(std::span<const Row> rows,
                                                                 std::span<const RegularizedParameter> regularized) {
    std::vector<Segment> segments;
    for (const Row& row : rows) {
        for (std::size_t p = 0; p < row.parameters.count; ++p) {
            double l2 = 0;
            for (const RegularizedParameter& r : regularized) l2 += r.offset == row.offsets[p] ? r.coefficient : 0.0;
            const Shape& shape = row.parameters.list[p].shape;
            segments.push_back({row.offsets[p], shape.size(), l2, shape.rank});
        }
    }
    return segments;
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
