// SPDX-License-Identifier: Apache-2.0
//
// The work of a training step on `Cuda` beside its network and its optimiser: numbers that change from step to step,
// the batch, the gradients' weighted sum and mean, and the values that the host reads. Each function queues one kernel
// on the context's stream, and waits for nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/step_constants.hpp>
#include <cupola/ops/cuda/algorithms.hpp>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/cuda/impl/step_elements.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// *to = value, which is passed as a kernel's argument, so that the host may change its own copy at once.
template <class V>
void queue_set(const CudaContext& context, V* to, const V& value) {
    static_assert(std::is_trivially_copyable_v<V> && sizeof(V) <= SetBytes::max_bytes);
    launch(context, 1, SetTo<V>{to, value});
}

/// Copies the step's constants to the place from which kernels read them, in the same way.
inline void queue_constants(const CudaContext& context, const StepConstants& constants) {
    const std::span<const std::byte> values = constants.values();
    for (std::size_t begin = 0; begin < values.size(); begin += SetBytes::max_bytes) {
        const std::size_t bytes = std::min(values.size() - begin, SetBytes::max_bytes);
        SetBytes set;
        set.to = reinterpret_cast<SetBytes::Unit*>(constants.on_device() + begin);
        std::memcpy(set.unit, values.data() + begin, bytes);
        launch(context, static_cast<std::int64_t>(bytes / sizeof(SetBytes::Unit)), set);
    }
}

/// Copies the columns of `to` out of a batch that has them, in the device's memory or pinned, unless *healthy is 0.
inline void queue_take_batch(const CudaContext& context, const BatchView& batch, const BatchSpan& to,
                             const std::int32_t* healthy) {
    TakeBatch<1> each{};
    each.healthy = healthy;
    for (const ColumnSpec& column : to.columns()) {
        constexpr std::int64_t word = sizeof(std::int32_t);
        const auto* const from = static_cast<const std::byte*>(batch.data(batch.columns().place_of(column.name)));
        const std::int64_t bytes = batch.size * static_cast<std::int64_t>(column.bytes());
        const std::int64_t words = reinterpret_cast<std::uintptr_t>(from) % word == 0 ? bytes / word : 0;
        each.column[each.columns++] = {from, to.data(static_cast<std::size_t>(&column - to.columns().begin())), words,
                                       bytes - words * word};
    }
    if (aligned_for_packs(each.column[0].from, each.column[0].to)) {
        const TakeBatch<4> packs(each);
        launch(context, packs.threads(), packs);
    } else {
        launch(context, each.threads(), each);
    }
}

/// The arguments of a sum, except its place.
[[nodiscard]] inline WeightedSumAt weighted_sum_of(std::span<const float* const> rows, std::span<const float> weights,
                                                   bool& packs) {
    require(rows.size() <= WeightedSumAt::max_rows && rows.size() == weights.size(), "a sum on Cuda takes at most ",
            WeightedSumAt::max_rows, " rows and one weight per row, not ", rows.size(), " rows and ", weights.size(),
            " weights");
    WeightedSumAt sum{};
    for (std::size_t r = 0; r < rows.size(); ++r) {
        sum.row[r] = rows[r];
        sum.weight[r] = weights[r];
        packs = packs && aligned_for_packs(rows[r]);
    }
    sum.rows = static_cast<int>(rows.size());
    return sum;
}

/// to = the sum of weights[r] * rows[r], in the order of the rows; zeros without rows. `to` may be one of them. A
/// single row of weight 1 keeps its bits.
inline void queue_weighted_sum(const CudaContext& context, std::span<const float* const> rows,
                               std::span<const float> weights, std::span<float> to) {
    bool packs = aligned_for_packs(to.data());
    WeightedSumAt sum = weighted_sum_of(rows, weights, packs);
    sum.to = to.data();
    launch_elementwise<float>(context, static_cast<std::int64_t>(to.size()), packs, sum);
}
/// The same, rounded once.
template <class To>
void queue_weighted_sum(const CudaContext& context, std::span<const float* const> rows, std::span<const float> weights,
                        std::span<To> to) {
    bool packs = aligned_for_packs(to.data());
    const WeightedSumAt sum = weighted_sum_of(rows, weights, packs);
    launch_elementwise<float>(context, static_cast<std::int64_t>(to.size()), packs, RoundedSumAt<To>{sum, to.data()});
}

/// Makes the gradient not finite if the loss is not: an invalid label, or a logit of -infinity, may leave a finite
/// gradient.
inline void queue_poison(const CudaContext& context, const double* loss, float* gradient) {
    launch(context, 1, PoisonBy{loss, gradient});
}

/// mean = sums / *count, with the same bits where *count is 1; `mean` may be `sums`. *healthy becomes 0 if an element
/// or the count is not finite, and otherwise is unchanged.
inline void queue_mean(const CudaContext& context, std::span<const float> sums, const float* count,
                       std::span<float> mean, std::int32_t* healthy, const ops::RowsOfMean& rows = {}) {
    launch_elementwise<float>(context, static_cast<std::int64_t>(mean.size()),
                              aligned_for_packs(sums.data(), mean.data()),
                              MeanAt{sums.data(), count, mean.data(), healthy, rows});
}

/// Copies `bytes` from the device to pinned memory of the host, which may read them once an event recorded after this
/// has completed.
inline void queue_copy_to_pinned(const CudaContext& context, const void* from, void* pinned_to, std::size_t bytes) {
    const auto either = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(pinned_to) | bytes;
    const auto copy = [&]<class Unit>(const Unit* units) {
        launch(context, static_cast<std::int64_t>(bytes / sizeof(Unit)),
               CopyToPinned<Unit>{units, static_cast<Unit*>(pinned_to)});
    };
    if (either % sizeof(SetBytes::Unit) == 0) {
        copy(static_cast<const SetBytes::Unit*>(from));
    } else {
        copy(static_cast<const std::byte*>(from));
    }
}

}  // namespace impl

namespace ops {

template <>
struct TrainingStep<Cuda> {
    static void poison(const CudaContext& context, const double* loss, float* gradient) {
        impl::queue_poison(context, loss, gradient);
    }
    static void weighted_sum(const CudaContext& context, std::span<const float* const> rows,
                             std::span<const float> weights, std::span<float> to) {
        impl::queue_weighted_sum(context, rows, weights, to);
    }
    static void mean(const CudaContext& context, std::span<const float> sums, const float* divisor,
                     std::span<float> mean, std::int32_t* healthy, const RowsOfMean& rows = {}) {
        impl::queue_mean(context, sums, divisor, mean, healthy, rows);
    }
    static void weigh(const CudaContext& context, std::span<const LossReport> reports, double scale, float* divisor) {
        launch(context, 1,
               impl::WeighReports{reports.data(), static_cast<std::int64_t>(reports.size()), scale, divisor});
    }
    static void sum_losses(const CudaContext& context, std::span<const LossReport> reports,
                           std::span<const double> factors, LossReport* to) {
        require(reports.size() <= impl::SumLosses::max_losses, "a training on Cuda has at most ",
                impl::SumLosses::max_losses, " losses of the data, not ", reports.size());
        impl::SumLosses sum{reports.data(), static_cast<int>(reports.size()), {}, to};
        std::copy(factors.begin(), factors.end(), sum.factor);
        launch(context, 1, sum);
    }
    static void sum_of_squares(const CudaContext& context, std::span<const float> values, double* to) {
        queue_sum_of_squares(context, values, to);
    }
    static void all_finite(const CudaContext& context, std::span<const float> values, std::int32_t* to) {
        queue_all_finite(context, values, to);
    }
    static void hash(const CudaContext& context, std::span<const float> values, std::uint64_t* to) {
        queue_hash_of(context, values, to);
    }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
