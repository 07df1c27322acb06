// SPDX-License-Identifier: Apache-2.0
//
// Weights of classes or channels inside the arguments of a kernel, which are at most 32,764 bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The capacities of arrays of weights.
inline constexpr std::size_t few_weights = 64, many_weights = 8000;

template <std::size_t capacity>
struct WeightArray {
    float value[capacity];

    [[nodiscard]] CUPOLA_HOST_DEVICE float operator[](std::int64_t c) const { return value[c]; }
};

template <std::size_t capacity>
[[nodiscard]] WeightArray<capacity> weight_array(std::span<const float> weights) {
    WeightArray<capacity> array{};
    std::copy(weights.begin(), weights.end(), array.value);
    return array;
}

/// Throws InvalidArgument for more weights than a kernel's arguments can hold.
inline void require_weight_capacity(std::size_t weights) {
    require(weights <= many_weights, "a loss on Cuda has weights of at most ", many_weights,
            " classes or channels, not ", weights);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
