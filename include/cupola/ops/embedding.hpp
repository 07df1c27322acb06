// SPDX-License-Identifier: Apache-2.0
//
// Embedding: each id of an input becomes a row of a table. Backward adds the gradients of the positions of each id in
// their order, in float, so the result has the same bits for any number of threads and on each device.
//
//   y[i] = table[id[i]]        dtable[r] = the sum of dy[i] over the positions i with id[i] = r
//
// A position whose id is the padding, or is not in [0, count), becomes zeros and has no gradient. The code that takes a
// batch reports an id that is out of range (ops/id_check.hpp).
#pragma once

#include <cstdint>

#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The table has `count` rows of `width` numbers. `padding` is an id, or -1 for none.
struct EmbeddingShape {
    std::int64_t count = 0, width = 0, padding = -1;

    /// Whether an id has a row.
    [[nodiscard]] CUPOLA_HOST_DEVICE bool has_row(std::int32_t id) const {
        return id >= 0 && id < count && id != padding;
    }
};

namespace ops {

/// Made as `Embedding(build, shape)`; specialised by each backend.
template <class Device, class T>
class Embedding;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
