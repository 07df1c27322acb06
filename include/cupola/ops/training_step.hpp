// SPDX-License-Identifier: Apache-2.0
//
// TrainingStep<Device>: the computations of a training step in addition to its network and its optimiser. Each function
// queues its work on the context without waiting; pointers are to the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <cupola/core/abi.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/loss_scale.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace ops {

/// The end of a step under a loss scale that changes, on the device: the scale of the next step, from whether the mean
/// gradient of this one was finite, as PyTorch's _amp_update_scale_. One formula for every device.
///
///   not finite:   scale = scale * backoff, good_steps = 0, skipped_steps + 1, and the device is healthy again
///   finite:       good_steps + 1; at the interval, scale = scale * growth and good_steps = 0
///
/// A step fails if it would reduce the scale below its minimum, or if its mean is not finite because of its input: a
/// target or an id that is not valid, weights that are negative or add up to 0. A failed step changes nothing, and the
/// device stays not healthy.
///
/// If `skips_without_weight`, a step whose weights are all 0 is skipped too, also with a constant scale: skipped_steps
/// + 1, the scale is unchanged, and the device is healthy again. With a constant scale any other mean that is not
/// finite is a failure.
///
/// All pointers are to the device's memory.
struct LossScaleUpdate {
    LossScale rule{};
    /// Whether a step whose samples all have the weight 0 is skipped.
    bool skips_without_weight = false;
    LossScaleState* state = nullptr;
    /// 0 if the mean gradient of this step, or of one that failed before it, is not finite; and whether a step has
    /// failed.
    std::int32_t *healthy = nullptr, *failed = nullptr;
    /// The divisor of the mean.
    const float* divisor = nullptr;
    /// The reports of the device's batches, none of which is of an earlier step.
    const LossReport* reports = nullptr;
    std::int64_t report_count = 0;
    const IdReport* ids = nullptr;
    std::int64_t id_count = 0;
    /// Where the gradients of the replicas are not finite (RowsOfMean), cleared if the step is skipped.
    unsigned long long* not_finite = nullptr;
    int replicas = 0;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t) const {
        if (*failed != 0) return;
        if (*healthy != 0) {
            if (rule.dynamic) count_good();
            return;
        }
        if (skips_without_weight && has_no_weight()) return skip(state->scale, state->good_steps);
        const double lower = static_cast<double>(state->scale) * rule.backoff;
        if (!rule.dynamic || !(lower >= rule.minimum) || !valid_input()) {
            *failed = 1;
            return;
        }
        skip(static_cast<float>(lower), 0);
    }

private:
    static constexpr float largest = std::numeric_limits<float>::max();

    CUPOLA_HOST_DEVICE void skip(float scale, std::int32_t good_steps) const {
        *state = {scale, good_steps, state->skipped_steps + 1};
        for (int r = 0; r < replicas; ++r) not_finite[r] = 0;
        *healthy = 1;
    }
    CUPOLA_HOST_DEVICE void count_good() const {
        if (++state->good_steps < rule.interval) return;
        const double larger = static_cast<double>(state->scale) * rule.growth;
        if (larger <= static_cast<double>(largest)) state->scale = static_cast<float>(larger);
        state->good_steps = 0;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE bool valid_input() const {
        return impl::is_finite(*divisor) && *divisor > 0 && valid_targets();
    }
    /// Also checks the weights of this device's samples: a weight above 0 here and one below 0 elsewhere add up to 0.
    [[nodiscard]] CUPOLA_HOST_DEVICE bool has_no_weight() const {
        if (*divisor != 0 || !valid_targets()) return false;
        for (std::int64_t i = 0; i < report_count; ++i) {
            if (reports[i].weight > 0 || !impl::is_finite(reports[i].sum)) return false;
        }
        return true;
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE bool valid_targets() const {
        for (std::int64_t i = 0; i < report_count; ++i) {
            if (reports[i].bad_target >= 0 || reports[i].weight < 0) return false;
        }
        for (std::int64_t i = 0; i < id_count; ++i) {
            if (ids[i].place >= 0) return false;
        }
        return true;
    }
};

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

/// On the host and the calling thread, in the elements [begin, end): to = the sum of weight(r) * rows[r], in the order
/// of the rows. There is at least one row.
template <class Weight>
void sum_weighted_rows(std::span<const float* const> rows, const Weight& weight, float* to, std::int64_t begin,
                       std::int64_t end) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const float* const row = rows[r];
        const float by = weight(r);
        if (r == 0) {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) to[i] = by * row[i];
        } else {
#pragma omp simd
            for (std::int64_t i = begin; i < end; ++i) to[i] += by * row[i];
        }
    }
}

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
