// SPDX-License-Identifier: Apache-2.0
//
// The functors of the kernels of ops/cuda/algorithms.hpp: the value of an element, and the destination of a sum.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/core/hash_word.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct SquareOf {
    const float* values;

    CUPOLA_HOST_DEVICE double operator()(std::int64_t i, std::int64_t) const {
        const auto value = static_cast<double>(values[i]);
        return value * value;
    }
};

/// 1 for an infinity or a NaN, whose exponent bits are all ones.
struct NotFinite {
    const float* values;

    CUPOLA_HOST_DEVICE std::uint64_t operator()(std::int64_t i, std::int64_t) const {
        return (__builtin_bit_cast(std::uint32_t, values[i]) & 0x7F80'0000U) == 0x7F80'0000U ? 1 : 0;
    }
};

/// The parts of hash_of on `Host`: one for each pair of `count` values.
struct HashOf {
    const float* values;
    std::int64_t count;

    CUPOLA_HOST_DEVICE std::uint64_t operator()(std::int64_t pair, std::int64_t) const {
        const auto first = __builtin_bit_cast(std::uint32_t, values[2 * pair]);
        if (2 * pair + 1 == count) return hash_of_single(first, pair);
        const auto second = __builtin_bit_cast(std::uint32_t, values[2 * pair + 1]);
        return hash_of_word(first | static_cast<std::uint64_t>(second) << 32, hash_mask(pair));
    }
};

template <class V>
struct SumTo {
    V* to;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t which, V sum) const { to[which] = sum; }
};

/// 1 where the count is 0, else 0.
struct NoneTo {
    std::int32_t* to;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t which, std::uint64_t count) const {
        to[which] = count == 0 ? 1 : 0;
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
