// SPDX-License-Identifier: Apache-2.0
//
// The check of the ids of a batch, in the device's memory: a step and an evaluation report an id that is out of range.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The first id of a batch that is out of range, in memory that the host reads after the step is complete.
struct IdReport {
    /// Its place in its column, or -1 if there is none.
    std::int64_t place;
    std::int32_t id;
    /// The number of the column among those that the batch is required to have.
    std::int32_t column;
};

namespace impl {

/// The report of ids that are all in range.
inline constexpr IdReport no_bad_id{.place = -1, .id = 0, .column = 0};

}  // namespace impl

namespace ops {

/// Specialised by each backend, with these static functions:
///   queue(context, ids, elements, count, column, report, loss)
///                 where an id is not in [0, count): *loss = NaN, which makes the step have no effect, and *report is
///                 that id unless a previous column has one. Waits for nothing
///   find(context, ids, elements, count)    the first such id; waits
template <class Device>
struct IdCheck;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
