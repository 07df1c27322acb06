// SPDX-License-Identifier: Apache-2.0
//
// Operations on the rows of a matrix. Such an operation is a formula: a function object that computes one row, written
// once for all devices. A device supplies the loop over the rows, and the lanes that share the elements of a row
// (ops/host/rows.hpp, ops/cuda/rows.hpp):
//
//   for_each_row(context, rows, width, formula)
//
// calls formula(lanes, n) for each n in [0, rows) on each lane of the row; `width` is the number of its elements. The
// order of the rows is not specified. `lanes` has
//
//   exists()                 whether row n exists: a device may also call the formula for n >= rows, to fill a group
//                            of lanes
//   count(width)             `width`, and 0 if the row does not exist
//   begin(), step            the first element of this lane, and the distance to its next one
//   first()                  true on one lane of a row that exists: it writes what a row has once
//   sum(x)                   the sum of the lanes' doubles, the same on each lane
//   largest(count, value)    RowTop: the first of the largest of value(c), the same on each lane
//
// Lanes exchange values in sum() and largest(), so each lane calls them in the same places, also without a row:
//
//   template <class Lanes>
//   CUPOLA_HOST_DEVICE void operator()(const Lanes& lanes, std::int64_t n) const {    // to = from / the sum of its row
//       const std::int64_t count = lanes.count(width);
//       double sum = 0;
//       for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step) sum += from[n * width + c];
//       sum = lanes.sum(sum);
//       for (std::int64_t c = lanes.begin(); c < count; c += Lanes::step)
//           to[n * width + c] = static_cast<float>(from[n * width + c] / sum);
//   }
//
//   sum_columns(context, rows, width, formula, to)
//
// sets to[c], floats, to the sum over n of the doubles formula(n, c): the gradient of a parameter per column.
//
//   report_rows(context, rows, width, positions, formula, report)
//
// sums the loss of the rows: formula(lanes, n) returns a `Formula::Result`, of which that of the first lane counts, and
// formula.report_of(n, result) the LossReport of the row. `positions` are the rows per sample, which the sum and the
// weight are divided by. Without `Formula::weighted` each row has the weight 1 and a prediction.
//
// All sums are in an order that depends only on the device's type, `rows` and `width`.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The largest value of a row and its place; -1 in a row without values. A NaN is the largest only if it is a lane's
/// first.
struct RowTop {
    std::int64_t place = -1;
    float value = 0;

    /// Takes another value, if it is larger, or as large and before this one.
    CUPOLA_HOST_DEVICE constexpr void take(std::int64_t other_place, float other) {
        if (other_place < 0) return;
        if (place < 0 || other > value || (other == value && other_place < place)) {
            value = other;
            place = other_place;
        }
    }
};

/// The largest of the values that a lane has: each `step`-th from `first` on.
template <class Value>
[[nodiscard]] CUPOLA_HOST_DEVICE RowTop largest_of_lane(std::int64_t count, std::int64_t first, std::int64_t step,
                                                        const Value& value) {
    RowTop top;
    if (first >= count) return top;
    top = {.place = first, .value = value(first)};
    for (std::int64_t c = first + step; c < count; c += step) {
        const float next = value(c);
        if (next > top.value) top = {.place = c, .value = next};
    }
    return top;
}

/// The sum over a row of `count` elements of the doubles value(i), in a fixed order. Where a row has one lane it keeps
/// eight sums, which do not wait for each other.
template <class Lanes, class Value>
[[nodiscard]] CUPOLA_HOST_DEVICE double sum_of_row(const Lanes& lanes, std::int64_t count, const Value& value) {
    double sum = 0;
    if constexpr (Lanes::step == 1) {
        constexpr std::int64_t at_once = 8;
        double sums[at_once] = {};
        std::int64_t i = 0;
        for (; i + at_once <= count; i += at_once) {
            for (std::int64_t k = 0; k < at_once; ++k) sums[k] += value(i + k);
        }
        for (std::int64_t k = 0; i + k < count; ++k) sums[k] += value(i + k);
        for (const double part : sums) sum += part;
    } else {
        for (std::int64_t i = lanes.begin(); i < count; i += Lanes::step) sum += value(i);
    }
    return lanes.sum(sum);
}

/// A formula that computes nothing.
struct EmptyRow {
    template <class Lanes>
    CUPOLA_HOST_DEVICE void operator()(const Lanes&, std::int64_t) const {}
};

}  // namespace impl

/// A device with a `for_each_row`, whose backend is included.
template <class Device>
concept ComputesRows = requires(const typename Device::Context& context) {
    for_each_row(context, std::int64_t{0}, std::int64_t{0}, impl::EmptyRow{});
};

}}  // namespace cupola::CUPOLA_ABI
