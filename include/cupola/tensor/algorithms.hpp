// SPDX-License-Identifier: Apache-2.0
//
// Element-wise algorithms and sums on `Host`.
//
// OpenMP distributes the work in blocks of a fixed number of elements; inside a block the loop is the caller's, a plain
// loop that the compiler vectorises. A sum adds within a block and then over the blocks in their order, so it has the
// same bits whatever the number of threads, their affinity and the number of processors. (An OpenMP reduction splits by
// the number of threads; Thrust's by the number of processors, and allocates.)
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/core/hash_word.hpp>
#include <cupola/device/host.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Elements per block: 16 KB of float, half of a first-level cache.
inline constexpr std::int64_t block_size = 4096;

namespace impl {

/// A loop body behind two pointers, so that a parallel region is compiled once and not for each loop. A call costs a
/// nanosecond and does the work of thousands of elements.
template <class Result, class... Places>
struct BodyCall {
    void* object;
    Result (*call)(void*, Places...);

    template <class Function>
    [[nodiscard]] static BodyCall of(Function& f) {
        return {const_cast<void*>(static_cast<const void*>(std::addressof(f))), &call_of<Function>};
    }

private:
    template <class Function>
    static Result call_of(void* object, Places... places) {
        return (*static_cast<Function*>(object))(places...);
    }
};
using IndexedCall = BodyCall<void, std::int64_t>;
using BlockCall = BodyCall<void, std::int64_t, std::int64_t>;
using BlockSum = BodyCall<double, std::int64_t, std::int64_t>;

void run_in_parallel(const HostContext& context, std::int64_t count, IndexedCall body);
void run_blocks(const HostContext& context, std::int64_t count, BlockCall body);
[[nodiscard]] double add_blocks(const HostContext& context, std::int64_t count, BlockSum sum);

}  // namespace impl

/// Calls f(i) for i in [0, count), in parallel, in no fixed order. For work that is large per i. `f` must not throw.
template <class Function>
void parallel_for(const HostContext& context, std::int64_t count, Function&& f) {
    impl::run_in_parallel(context, count, impl::IndexedCall::of(f));
}

/// Calls f(begin, end) for each block of [0, count), in parallel, in no fixed order.
template <class Function>
void for_each_block(const HostContext& context, std::int64_t count, Function&& f) {
    impl::run_blocks(context, count, impl::BlockCall::of(f));
}

/// to[i] = f(from[i]).
template <class To, class From, class Function>
void transform(const HostContext& context, std::span<const From> from, std::span<To> to, Function f) {
    for_each_block(context, static_cast<std::int64_t>(from.size()), [&](std::int64_t begin, std::int64_t end) {
        const From* source = from.data();
        To* target = to.data();
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) target[i] = f(source[i]);
    });
}

/// values *= factor.
void scale(const HostContext& context, std::span<float> values, double factor);

template <class T>
void fill(const HostContext& context, std::span<T> to, T value) {
    for_each_block(context, static_cast<std::int64_t>(to.size()),
                   [&](std::int64_t begin, std::int64_t end) { std::fill(to.data() + begin, to.data() + end, value); });
}

/// The sum of f(begin, end), a double for each block of [0, count), added in block order. No allocation: blocks are
/// taken in rounds whose partial sums fit on the stack.
template <class Function>
[[nodiscard]] double sum_blocks(const HostContext& context, std::int64_t count, Function&& f) {
    return impl::add_blocks(context, count, impl::BlockSum::of(f));
}

/// The sum of the squares.
[[nodiscard]] double sum_of_squares(const HostContext& context, std::span<const float> values);

/// Whether no value is infinite or not a number.
[[nodiscard]] bool all_finite(const HostContext& context, std::span<const float> values);

/// A 64-bit hash of the bits of `values`. Each pair of elements is mixed with its place and the results are added, so
/// the order does not matter and every device computes the same hash.
[[nodiscard]] std::uint64_t hash_of(const HostContext& context, std::span<const float> values);

#ifndef CUPOLA_OPS

[[gnu::noinline]] CUPOLA_INLINE void impl::run_in_parallel(const HostContext& context, std::int64_t count,
                                                           IndexedCall body) {
    // A parallel region of two threads costs 1.6 microseconds, more than it saves for a single block.
    if (count <= 1 || context.threads() == 1) {
        for (std::int64_t i = 0; i < count; ++i) body.call(body.object, i);
        return;
    }
    const HostContext::Team team = context.team();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) body.call(body.object, i);
}

[[gnu::noinline]] CUPOLA_INLINE void impl::run_blocks(const HostContext& context, std::int64_t count, BlockCall body) {
    parallel_for(context, (count + block_size - 1) / block_size, [=](std::int64_t block) {
        body.call(body.object, block * block_size, std::min(count, (block + 1) * block_size));
    });
}

[[gnu::noinline]] CUPOLA_INLINE double impl::add_blocks(const HostContext& context, std::int64_t count, BlockSum sum) {
    constexpr std::int64_t blocks_per_round = 512;
    double partial[blocks_per_round];
    double total = 0;
    const std::int64_t blocks = (count + block_size - 1) / block_size;
    for (std::int64_t first = 0; first < blocks; first += blocks_per_round) {
        const std::int64_t here = std::min(blocks_per_round, blocks - first);
        parallel_for(context, here, [&](std::int64_t i) {
            const std::int64_t begin = (first + i) * block_size;
            partial[i] = sum.call(sum.object, begin, std::min(count, begin + block_size));
        });
        for (std::int64_t i = 0; i < here; ++i) total += partial[i];
    }
    return total;
}

CUPOLA_INLINE void scale(const HostContext& context, std::span<float> values, double factor) {
    for_each_block(context, static_cast<std::int64_t>(values.size()), [=](std::int64_t begin, std::int64_t end) {
        float* data = values.data();
        const auto by = static_cast<float>(factor);
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) data[i] *= by;
    });
}

CUPOLA_INLINE double sum_of_squares(const HostContext& context, std::span<const float> values) {
    return sum_blocks(context, static_cast<std::int64_t>(values.size()), [&](std::int64_t begin, std::int64_t end) {
        // Four partial sums per block: with one, each addition would wait for the previous.
        const float* const data = values.data() + begin;
        const std::int64_t run = (end - begin) / 4;
        double a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
        for (std::int64_t i = 0; i < run; ++i) {
            const auto x = static_cast<double>(data[i]), y = static_cast<double>(data[i + run]);
            const auto z = static_cast<double>(data[i + 2 * run]), w = static_cast<double>(data[i + 3 * run]);
            a += x * x;
            b += y * y;
            c += z * z;
            d += w * w;
        }
        double sum = (a + b) + (c + d);
        for (std::int64_t i = begin + 4 * run; i < end; ++i) {
            sum += static_cast<double>(values.data()[i]) * static_cast<double>(values.data()[i]);
        }
        return sum;
    });
}

CUPOLA_INLINE bool all_finite(const HostContext& context, std::span<const float> values) {
    // The exponent of such a value is all ones. In integers, because a sum would wait for each of its additions.
    return sum_blocks(context, static_cast<std::int64_t>(values.size()), [&](std::int64_t begin, std::int64_t end) {
               const float* const data = values.data();
               std::int32_t largest = 0;
#pragma omp simd reduction(max : largest)
               for (std::int64_t i = begin; i < end; ++i) {
                   const std::int32_t magnitude = std::bit_cast<std::int32_t>(data[i]) & 0x7FFF'FFFF;
                   largest = magnitude > largest ? magnitude : largest;
               }
               return largest >= 0x7F80'0000 ? 1.0 : 0.0;
           }) == 0.0;
}

CUPOLA_INLINE std::uint64_t hash_of(const HostContext& context, std::span<const float> values) {
    std::uint64_t total = 0;
    constexpr std::int64_t blocks_per_round = 512;
    std::uint64_t partial[blocks_per_round];
    const auto count = static_cast<std::int64_t>(values.size());
    const std::int64_t blocks = (count + block_size - 1) / block_size;
    for (std::int64_t first = 0; first < blocks; first += blocks_per_round) {
        const std::int64_t here = std::min(blocks_per_round, blocks - first);
        parallel_for(context, here, [&](std::int64_t b) {
            const std::int64_t begin = (first + b) * block_size, end = std::min(count, begin + block_size);
            const float* const data = values.data();
            std::uint64_t sum = 0, mask = impl::hash_mask(begin / 2);
#pragma omp simd reduction(+ : sum) linear(mask : impl::hash_mask_step)
            for (std::int64_t pair = begin / 2; pair < end / 2; ++pair) {
                std::uint64_t word = 0;
                std::memcpy(&word, data + 2 * pair, sizeof word);
                sum += impl::hash_of_word(word, mask);
                mask += impl::hash_mask_step;
            }
            if (end % 2 != 0) sum += impl::hash_of_single(std::bit_cast<std::uint32_t>(data[end - 1]), end / 2);
            partial[b] = sum;
        });
        for (std::int64_t b = 0; b < here; ++b) total += partial[b];
    }
    return total;
}

#endif

}}  // namespace cupola::CUPOLA_ABI
