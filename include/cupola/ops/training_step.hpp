// SPDX-License-Identifier: Apache-2.0
//
// TrainingStep<Device>: the computations of a training step in addition to its network and its optimiser. Each function
// queues its work on the context without waiting; pointers are to the device's memory.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/ops/loss_scale.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// The gradient rows of a mean, for the search of the origin of a result that is not finite. Read and written only if
/// there is such a result.
struct RowsOfMean {
    /// Element 0 of the first row, at the first element of the mean; `stride` elements from row to row.
    const float* rows = nullptr;
    std::int64_t stride = 0;
    int count = 0;
    /// The column of that element.
    std::int64_t first_column = 0;
    /// For each row, the column + 1 of its last element that is not finite and makes the mean not finite. Only ever
    /// increased.
    unsigned long long* ends = nullptr;
};

/// Specialised by each backend, with these static functions:
///   poison(context, loss, gradient, failed)         gradient[0] = NaN if *loss is not finite, or if *failed is not 0;
///                                                   `failed` may be null
///   scale(context, values, factor, by)              values *= factor * *by, the product rounded to float
///   weighted_sum(context, rows, weights, to)        to = sum of weights[r] * rows[r], in the order of the rows; zeros
///                                                   if there are no rows; `to` may be one of the rows
///   mean(context, sums, divisor, mean, healthy, rows, loss_scale)
///                                                   mean = sums / (*divisor * *loss_scale), of the same bits where
///                                                   that is 1; *healthy becomes 0 if a result or the divisor is not
///                                                   finite; `mean` may be `sums`; `rows` is a RowsOfMean, by default
///                                                   of no rows; a `loss_scale` of null, the default, is 1; where the
///                                                   divisor is 0, *healthy becomes 0 and it counts as 1, so that rows
///                                                   that are divided in place can be used in the next step
///   update_loss_scale(context, update)              the LossScaleUpdate
///   weigh(context, reports, scale, divisor)         *divisor = scale times the sum of the weights of the LossReports
///   sum_losses(context, reports, factors, to)       *to = the report of the sum of factors[k] * reports[k], with the
///                                                   weight of the first, and the predictions of the first that counts
///                                                   any
///   sum_of_squares(context, values, to)             *to = the sum of the squares, in double
///   all_finite(context, values, to)                 *to = 1 if every value is finite, else 0
///   hash(context, values, to)                       *to = the 64-bit hash of the bits
template <class Device>
struct TrainingStep;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
