// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/tensor/algorithms.hpp.
#pragma once

#include <cupola/tensor/algorithms.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

[[gnu::noinline]] CUPOLA_DECL void impl::run_in_parallel(const HostContext& context, std::int64_t count,
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

[[gnu::noinline]] CUPOLA_DECL void impl::run_blocks(const HostContext& context, std::int64_t count, BlockCall body) {
    parallel_for(context, (count + block_size - 1) / block_size, [=](std::int64_t block) {
        body.call(body.object, block * block_size, std::min(count, (block + 1) * block_size));
    });
}

[[gnu::noinline]] CUPOLA_DECL double impl::add_blocks(const HostContext& context, std::int64_t count, BlockSum sum) {
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

CUPOLA_DECL void scale(const HostContext& context, std::span<float> values, double factor) {
    for_each_block(context, static_cast<std::int64_t>(values.size()), [=](std::int64_t begin, std::int64_t end) {
        float* data = values.data();
        const auto by = static_cast<float>(factor);
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) data[i] *= by;
    });
}

CUPOLA_DECL double sum_of_squares(const HostContext& context, std::span<const float> values) {
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

CUPOLA_DECL bool all_finite(const HostContext& context, std::span<const float> values) {
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

CUPOLA_DECL std::uint64_t hash_of(const HostContext& context, std::span<const float> values) {
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

}}  // namespace cupola::CUPOLA_ABI
