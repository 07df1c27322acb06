// SPDX-License-Identifier: Apache-2.0
//
// The work of a training step on `Cuda` in addition to its network and its optimiser: numbers that change from step to
// step, the batch, the gradients' weighted sum and mean, and the values that the host reads. Each function queues one
// kernel on the context's stream, and waits for nothing; a mean and the sums of squares after it are joined.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/device/cuda.hpp>
#include <cupola/device/cuda/graph.hpp>
#include <cupola/device/cuda/step_constants.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/ops/cuda/algorithms.hpp>
#include <cupola/ops/cuda/impl/joined_gradients.cuh>
#include <cupola/ops/cuda/impl/launch_packs.cuh>
#include <cupola/ops/cuda/impl/step_sums.cuh>
#include <cupola/ops/impl/kernel_parts/step_elements.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

inline void Cuda::require_code(const CudaContext& context) {
    const auto scope = context.team();
    impl::require_code(impl::strided_kernel<impl::CopyToPinned<impl::PinnedUnit>>);
}

namespace impl {

/// Writes, and the batch after them, that wait to be launched together.
struct JoinedWrites {
    using Base = JoinedWrites;

    /// Whether `words` words at `to` can be written by the same kernel as the others: none of them is written twice.
    [[nodiscard]] bool takes(const std::uint32_t* to, int words) const {
        if (takes_batch || values.writes == WriteWords::max_writes || values.words + words > WriteWords::max_words)
            return false;
        return !writes(to, words);
    }
    void add(std::uint32_t* to, const void* from, int words) {
        std::memcpy(values.word + values.words, from, static_cast<std::size_t>(words) * sizeof(std::uint32_t));
        values.words += words;
        values.write[values.writes++] = {to, values.words};
    }
    /// Whether one of the writes changes one of `words` words at `at`.
    [[nodiscard]] bool writes(const void* at, int words) const {
        const auto* const first = static_cast<const std::uint32_t*>(at);
        int begin = 0;
        for (int k = 0; k < values.writes; ++k) {
            const WriteWords::Write& each = values.write[k];
            if (first < each.to + (each.end - begin) && each.to < first + words) return true;
            begin = each.end;
        }
        return false;
    }

    void launch(const CudaContext& context) const {
        as_functor([&](std::int64_t count, const auto& functor) { impl::launch(context, count, functor); });
    }
    [[nodiscard]] const void* kernel(const CudaContext& context) const {
        const void* result = nullptr;
        as_functor([&]<class Functor>(std::int64_t count, const Functor&) {
            result = reinterpret_cast<const void*>(strided_launch<Functor>(context, count).kernel);
        });
        return result;
    }
    /// Makes this work the first kernel of captured work that began with other writes by the same kernel.
    void replace_first_of(const CapturedWork& captured, const CudaContext& context) const {
        as_functor([&]<class Functor>(std::int64_t count, const Functor& functor) {
            const auto [kernel, blocks] = strided_launch<Functor>(context, count);
            void* arguments[] = {&count, const_cast<Functor*>(&functor)};
            captured.set_first_kernel(reinterpret_cast<const void*>(kernel), blocks, block_threads, arguments);
        });
    }

    WriteWords values{};
    bool takes_batch = false, packs = false;
    TakeBatch<1> batch{};

private:
    /// Calls call(count, functor) with the functor that the kernel calls for each index.
    template <class Call>
    void as_functor(const Call& call) const {
        if (!takes_batch) {
            call(values.words, values);
        } else if (packs) {
            const WriteWordsAndTake<4> each{values, TakeBatch<4>(batch)};
            call(values.words + each.batch.threads(), each);
        } else {
            call(values.words + batch.threads(), WriteWordsAndTake<1>{values, batch});
        }
    }
};

/// Copies `words` words from the host's memory to `to`. They are passed as a kernel's argument, so the host may change
/// them at once. Joined with other writes, and with a batch that is taken next.
inline void queue_words(const CudaContext& context, std::uint32_t* to, const void* from, int words) {
    if (!context.joined<JoinedWrites>().takes(to, words)) context.launch_joined();
    context.joined<JoinedWrites>().add(to, from, words);
}

/// *to = value, in the same way.
template <class V>
void queue_set(const CudaContext& context, V* to, const V& value) {
    static_assert(std::is_trivially_copyable_v<V> && sizeof(V) % sizeof(std::uint32_t) == 0 &&
                  sizeof(V) <= WriteWords::max_words * sizeof(std::uint32_t));
    queue_words(context, reinterpret_cast<std::uint32_t*>(to), &value,
                static_cast<int>(sizeof(V) / sizeof(std::uint32_t)));
}

/// Copies the step's constants to the place from which kernels read them, in the same way.
inline void queue_constants(const CudaContext& context, const StepConstants& constants) {
    constexpr std::size_t word = sizeof(std::uint32_t), at_once = WriteWords::max_words / 2 * word;
    const std::span<const std::byte> values = constants.values();
    for (std::size_t begin = 0; begin < values.size(); begin += at_once) {
        const std::size_t bytes = std::min(values.size() - begin, at_once);
        queue_words(context, reinterpret_cast<std::uint32_t*>(constants.on_device() + begin), values.data() + begin,
                    static_cast<int>(bytes / word));
    }
}

/// The same for the version that the device chooses among the `versions.count` in `values`, one after another; in
/// separate kernels.
inline void queue_constants(const CudaContext& context, const StepConstants& constants,
                            const ConstantsVersions& versions, std::span<const std::byte> values) {
    constexpr std::size_t word = sizeof(std::uint32_t);
    const auto count = static_cast<std::size_t>(versions.count);
    const std::size_t each = values.size() / count, most = WriteWordsOfVersion::max_words / count * word;
    for (std::size_t begin = 0; begin < each; begin += most) {
        const std::size_t bytes = std::min(each - begin, most);
        WriteWordsOfVersion write;
        write.to = reinterpret_cast<std::uint32_t*>(constants.on_device() + begin);
        write.counter = versions.counter;
        write.base = versions.base;
        write.versions = versions.count;
        write.words = static_cast<std::int64_t>(bytes / word);
        for (std::size_t v = 0; v < count; ++v)
            std::memcpy(write.word + v * bytes / word, values.data() + v * each + begin, bytes);
        launch(context, write.words, write);
    }
}

/// Copies the columns of `to` out of a batch that has them, in the device's memory or in pinned memory, unless *healthy
/// is 0; joined with the writes before it. The column "input", of floats, is also rounded to `rounded`, unless that is
/// null.
template <class T = BFloat16>
void queue_take_batch(const CudaContext& context, const BatchView& batch, const BatchSpan& to,
                      const std::int32_t* healthy, T* rounded = nullptr) {
    TakeBatch<1> each{};
    each.healthy = healthy;
    bool packs = aligned_for_packs(rounded);
    const auto add = [&](const ColumnSpec& column) {
        constexpr std::int64_t word = sizeof(std::int32_t);
        const auto* const from = static_cast<const std::byte*>(batch.data(batch.columns().place_of(column.name)));
        const std::int64_t bytes = batch.size * static_cast<std::int64_t>(column.bytes());
        const std::int64_t words = reinterpret_cast<std::uintptr_t>(from) % word == 0 ? bytes / word : 0;
        each.column[each.columns++] = {from, to.data(static_cast<std::size_t>(&column - to.columns().begin())), words,
                                       bytes - words * word};
    };
    if (rounded != nullptr) {
        if constexpr (std::same_as<T, BFloat16>) {
            each.in_bfloat16 = rounded;
        } else {
            each.in_half = rounded;
        }
        add(*to.columns().find(input_column));
    }
    for (const ColumnSpec& column : to.columns()) {
        if (rounded == nullptr || column.name != input_column) add(column);
    }
    packs = packs && aligned_for_packs(each.column[0].from, each.column[0].to);
    const auto& written = context.joined<JoinedWrites>();
    if (written.takes_batch || written.writes(healthy, 1)) context.launch_joined();
    auto& joined = context.joined<JoinedWrites>();
    joined.takes_batch = true;
    joined.packs = packs;
    joined.batch = each;
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
/// single row of weight 1 keeps its bits. The kernel also makes the write `beside`, unless `to` is empty.
inline void queue_weighted_sum(const CudaContext& context, std::span<const float* const> rows,
                               std::span<const float> weights, std::span<float> to, const FloatWrite& beside = {}) {
    bool packs = aligned_for_packs(to.data());
    WeightedSumAt sum = weighted_sum_of(rows, weights, packs);
    sum.to = to.data();
    sum.beside = beside;
    launch_elementwise<float>(context, static_cast<std::int64_t>(to.size()), packs, sum);
}
/// The same, rounded once.
template <class To>
void queue_weighted_sum(const CudaContext& context, std::span<const float* const> rows, std::span<const float> weights,
                        std::span<To> to, const FloatWrite& beside = {}) {
    bool packs = aligned_for_packs(to.data());
    WeightedSumAt sum = weighted_sum_of(rows, weights, packs);
    sum.beside = beside;
    launch_elementwise<float>(context, static_cast<std::int64_t>(to.size()), packs, RoundedSumAt<To>{sum, to.data()});
}

/// Makes the gradient not finite if the loss is not: an invalid label, or a logit of -infinity, may leave a finite
/// gradient. The same once *failed is not 0, where `failed` is not null.
inline void queue_poison(const CudaContext& context, const double* loss, float* gradient,
                         const std::int32_t* failed = nullptr) {
    const auto takes = [](const JoinedGradients& each) { return each.takes_loss(); };
    collected_gradients(context, true, takes).set_loss(loss, failed, gradient);
}

/// mean = sums / (*count * *loss_scale), with the same bits where that is 1; `mean` may be `sums`. *healthy becomes 0
/// if an element or the count is not finite, and otherwise is unchanged. A null `loss_scale` is 1.
inline void queue_mean(const CudaContext& context, std::span<const float> sums, const float* count,
                       std::span<float> mean, std::int32_t* healthy, const ops::RowsOfMean& rows = {},
                       const float* loss_scale = nullptr) {
    if (mean.empty()) return;
    if (!joined_step_sums(context).takes_mean()) context.launch_joined();
    joined_step_sums(context).set_mean(MeanAt{sums.data(), count, loss_scale, mean.data(), healthy, rows},
                                       static_cast<std::int64_t>(mean.size()),
                                       aligned_for_packs(sums.data(), mean.data()));
}

/// Copies `bytes` from the device to pinned memory of the host, which may read them once an event recorded after this
/// has completed.
inline void queue_copy_to_pinned(const CudaContext& context, const void* from, void* pinned_to, std::size_t bytes) {
    const auto either = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(pinned_to) | bytes;
    const auto copy = [&]<class Unit>(const Unit* units) {
        launch(context, static_cast<std::int64_t>(bytes / sizeof(Unit)),
               CopyToPinned<Unit>{units, static_cast<Unit*>(pinned_to)});
    };
    if (either % sizeof(PinnedUnit) == 0) {
        copy(static_cast<const PinnedUnit*>(from));
    } else {
        copy(static_cast<const std::byte*>(from));
    }
}

}  // namespace impl

namespace ops {

template <>
struct TrainingStep<Cuda> {
    static void poison(const CudaContext& context, const double* loss, float* gradient,
                       const std::int32_t* failed = nullptr) {
        impl::queue_poison(context, loss, gradient, failed);
    }
    static void scale(const CudaContext& context, std::span<float> values, double factor, const float* by) {
        impl::launch_elementwise<float>(context, static_cast<std::int64_t>(values.size()),
                                        impl::aligned_for_packs(values.data()),
                                        impl::ScaleByAt{values.data(), factor, by});
    }
    static void weighted_sum(const CudaContext& context, std::span<const float* const> rows,
                             std::span<const float> weights, std::span<float> to) {
        impl::queue_weighted_sum(context, rows, weights, to);
    }
    static void mean(const CudaContext& context, std::span<const float> sums, const float* divisor,
                     std::span<float> mean, std::int32_t* healthy, const RowsOfMean& rows = {},
                     const float* loss_scale = nullptr) {
        impl::queue_mean(context, sums, divisor, mean, healthy, rows, loss_scale);
    }
    static void update_loss_scale(const CudaContext& context, const LossScaleUpdate& update) {
        impl::launch(context, 1, update);
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
        const auto count = static_cast<std::int64_t>(values.size());
        if (!impl::joined_step_sums(context).takes_sum(count)) context.launch_joined();
        impl::joined_step_sums(context).add_sum(context, values.data(), count, to);
    }
    static void all_finite(const CudaContext& context, std::span<const float> values, std::int32_t* to) {
        queue_all_finite(context, values, to);
    }
    static void hash(const CudaContext& context, std::span<const float> values, std::uint64_t* to) {
        queue_hash_of(context, values, to);
    }
};

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
