// SPDX-License-Identifier: Apache-2.0
//
// The small kernels of a training step, which ops/cuda/training_step.hpp queues.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cupola/ops/impl/kernel_parts/pack.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Neither infinite nor a NaN, in both of which all exponent bits are ones.
[[nodiscard]] CUPOLA_HOST_DEVICE inline bool is_finite_number(float value) {
    return (__builtin_bit_cast(std::uint32_t, value) & 0x7F80'0000U) != 0x7F80'0000U;
}

[[nodiscard]] CUPOLA_HOST_DEVICE inline bool is_finite_number(double value) {
    constexpr std::uint64_t exponent = 0x7FF0'0000'0000'0000U;
    return (__builtin_bit_cast(std::uint64_t, value) & exponent) != exponent;
}

/// a * b + c with a single rounding, however the compiler treats products and sums.
[[nodiscard]] CUPOLA_HOST_DEVICE inline float multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, c);
#else
    return std::fma(a, b, c);
#endif
}

/// *to = the larger of *to and the value, atomically.
CUPOLA_HOST_DEVICE inline void raise(unsigned long long* to, unsigned long long value) {
#ifdef __CUDA_ARCH__
    atomicMax(to, value);
#else
    if (*to < value) *to = value;
#endif
}

/// What a thread copies to pinned memory.
struct alignas(16) PinnedUnit {
    std::uint32_t word[4];
};

/// Values passed as a kernel's argument, one word of them per thread.
struct WriteWords {
    static constexpr int max_writes = 16, max_words = 512;

    struct Write {
        std::uint32_t* to;
        /// The index at which its words end.
        int end;
    };

    int writes = 0, words = 0;
    Write write[max_writes]{};
    std::uint32_t word[max_words]{};

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        int k = 0;
        while (i >= write[k].end) ++k;
        write[k].to[i - (k == 0 ? 0 : write[k - 1].end)] = word[i];
    }
};

/// Words of one of several versions, of which the device has the number: *counter - base, at least 0 and less than
/// `versions`. The versions are one after another in `word`, with `words` each.
struct WriteWordsOfVersion {
    static constexpr std::size_t max_words = 512;

    std::uint32_t* to;
    const std::int64_t* counter;
    std::int64_t base, versions, words;
    std::uint32_t word[max_words];

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        std::int64_t version = *counter - base;
        version = version < 0 ? 0 : version < versions ? version : versions - 1;
        to[i] = word[version * words + i];
    }
};

/// One column of a batch: words of 4 bytes, followed by the bytes that are not a whole word, or bytes alone if the
/// column is not aligned to words.
struct TakenColumn {
    const std::byte* from;
    std::byte* to;
    std::int64_t words, bytes;

    CUPOLA_HOST_DEVICE void copy_word(std::int64_t i) const {
        reinterpret_cast<std::int32_t*>(to)[i] = reinterpret_cast<const std::int32_t*>(from)[i];
    }
    CUPOLA_HOST_DEVICE void copy_byte(std::int64_t i) const { to[words * 4 + i] = from[words * 4 + i]; }
};

/// Copies a batch into the buffers that a captured step reads: `n` words of the first column per thread, then one word,
/// or one byte, per thread. A batch that caused a failure is kept: nothing is copied once *healthy is 0.
template <int n>
struct TakeBatch {
    TakenColumn column[max_columns]{};
    int columns = 0;
    const std::int32_t* healthy = nullptr;
    /// Where the first column, which is then of floats, is also written rounded; at most one is not null.
    BFloat16* in_bfloat16 = nullptr;
    Float16* in_half = nullptr;

    TakeBatch() = default;
    template <int m>
    explicit TakeBatch(const TakeBatch<m>& other)
        : columns(other.columns), healthy(other.healthy), in_bfloat16(other.in_bfloat16), in_half(other.in_half) {
        for (int c = 0; c < columns; ++c) column[c] = other.column[c];
    }

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        if (*healthy == 0) return;
        const TakenColumn& first = column[0];
        const std::int64_t packs = (first.words + n - 1) / n;
        if (i >= packs) {
            i -= packs;
            for (int c = 0; c < columns; ++c) {
                const std::int64_t words = c == 0 ? 0 : column[c].words;
                if (i < words) return column[c].copy_word(i);
                if (i - words < column[c].bytes) return column[c].copy_byte(i - words);
                i -= words + column[c].bytes;
            }
            return;
        }
        const std::int64_t at = i * n;
        if (at + n <= first.words) {
            const Pack<std::int32_t, n> words = pack_at<n>(reinterpret_cast<const std::int32_t*>(first.from + at * 4));
            pack_at<n>(reinterpret_cast<std::int32_t*>(first.to + at * 4)) = words;
            if (in_bfloat16 != nullptr) round(words, in_bfloat16 + at);
            if (in_half != nullptr) round(words, in_half + at);
        } else {
            CUPOLA_NO_UNROLL
            for (std::int64_t w = at; w < first.words; ++w) {
                first.copy_word(w);
                const auto word = pack_at<1>(reinterpret_cast<const std::int32_t*>(first.from + w * 4));
                if (in_bfloat16 != nullptr) round(word, in_bfloat16 + w);
                if (in_half != nullptr) round(word, in_half + w);
            }
        }
    }
    [[nodiscard]] std::int64_t threads() const {
        std::int64_t count = (column[0].words + n - 1) / n + column[0].bytes;
        for (int c = 1; c < columns; ++c) count += column[c].words + column[c].bytes;
        return count;
    }

private:
    template <int m, class T>
    CUPOLA_HOST_DEVICE static void round(const Pack<std::int32_t, m>& words, T* to) {
        Pack<T, m> rounded;
        CUPOLA_UNROLL
        for (int k = 0; k < m; ++k) rounded.element[k] = T(__builtin_bit_cast(float, words.element[k]));
        pack_at<m>(to) = rounded;
    }
};

/// The writes, and then a batch.
template <int n>
struct WriteWordsAndTake {
    WriteWords values;
    TakeBatch<n> batch;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        if (i < values.words) return values(i);
        batch(i - values.words);
    }
};

/// *to = *from, or `value` where `from` is null; nothing where `to` is null.
struct FloatWrite {
    float* to = nullptr;
    const float* from = nullptr;
    float value = 0;

    CUPOLA_HOST_DEVICE void operator()() const {
        if (to != nullptr) *to = from != nullptr ? *from : value;
    }
};

/// to = the sum of weight * row over the rows, in their order; also writes one other number.
struct WeightedSumAt {
    static constexpr int max_rows = 64;

    const float* row[max_rows];
    float weight[max_rows];
    int rows;
    float* to;
    FloatWrite beside;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        if (i == 0) beside();
        float sum[n];
        add<n>(i, sum);
        store_floats<n>(to + i, sum);
    }
    template <int n>
    CUPOLA_HOST_DEVICE void add(std::int64_t i, float* sum) const {
        float value[n];
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) sum[k] = 0.0F;
        for (int r = 0; r < rows; ++r) {
            load_floats<n>(row[r] + i, value);
            CUPOLA_UNROLL
            for (int k = 0; k < n; ++k)
                sum[k] = r == 0 ? weight[r] * value[k] : multiply_add(weight[r], value[k], sum[k]);
        }
    }
};

/// The same, rounded once.
template <class To>
struct RoundedSumAt {
    WeightedSumAt sum;
    To* to;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        if (i == 0) sum.beside();
        float values[n];
        sum.add<n>(i, values);
        store_floats<n>(to + i, values);
    }
};

/// values *= factor * *by, the product rounded to float.
struct ScaleByAt {
    float* values;
    double factor;
    const float* by;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        const auto both = static_cast<float>(factor * static_cast<double>(*by));
        float value[n];
        load_floats<n>(values + i, value);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) value[k] *= both;
        store_floats<n>(values + i, value);
    }
};

/// *divisor = scale times the sum of the reports' weights.
struct WeighReports {
    const LossReport* reports;
    std::int64_t count;
    double scale;
    float* divisor;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t) const {
        double weight = 0;
        for (std::int64_t i = 0; i < count; ++i) weight += reports[i].weight;
        *divisor = static_cast<float>(scale * weight);
    }
};

/// *to = the sum of factor * report over the losses of a batch.
struct SumLosses {
    static constexpr bool indexes_own_array = true;
    static constexpr int max_losses = 8;

    const LossReport* reports;
    int count;
    double factor[max_losses];
    LossReport* to;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t) const {
        LossReport sum{0, 0, 0, 0, -1, 0};
        for (int k = 0; k < count; ++k) add_loss(sum, reports[k], factor[k], k == 0);
        *to = sum;
    }
};

/// mean = sums / (count * loss_scale), the latter 1 if it is null. If a result or the count is not finite, sets
/// *healthy to 0 and searches for the rows that it comes from; otherwise leaves it unchanged. A divisor of 0 counts as
/// 1: see ops/training_step.hpp.
struct MeanAt {
    const float *sums, *count, *loss_scale;
    float* mean;
    std::int32_t* healthy;
    ops::RowsOfMean rows;

    template <int n>
    CUPOLA_HOST_DEVICE void at(std::int64_t i) const {
        float by = loss_scale == nullptr ? *count : *count * *loss_scale;
        if (by == 0.0F) {
            *healthy = 0;
            by = 1;
        }
        bool finite = is_finite_number(by);
        float value[n];
        load_floats<n>(sums + i, value);
        CUPOLA_UNROLL
        for (int k = 0; k < n; ++k) {
            value[k] = value[k] / by;
            finite = finite && is_finite_number(value[k]);
        }
        store_floats<n>(mean + i, value);
        if (finite) return;
        *healthy = 0;
        for (int r = 0; r < rows.count; ++r) {
            for (int k = 0; k < n; ++k) {
                if (is_finite_number(value[k]) || is_finite_number(rows.rows[r * rows.stride + i + k])) continue;
                raise(rows.ends + r, static_cast<unsigned long long>(rows.first_column + i + k + 1));
            }
        }
    }
};

/// Copies to host memory, one `Unit` per thread.
template <class Unit>
struct CopyToPinned {
    const Unit* from;
    Unit* to;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        expect_aligned<Unit>(from + i);
        expect_aligned<Unit>(to + i);
        to[i] = from[i];
#ifdef __CUDA_ARCH__
        __threadfence_system();
#endif
    }
};

/// The same to an address that the kernel reads from the device's memory, and that is another one in each run of
/// captured work.
struct CopyToPlace {
    const PinnedUnit* from = nullptr;
    PinnedUnit* const* place = nullptr;
    std::int64_t units = 0;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const { CopyToPinned<PinnedUnit>{from, *place}(i); }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
