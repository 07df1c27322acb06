// SPDX-License-Identifier: Apache-2.0
//
// Rows of few channels as rows of 16 bytes, which is what tensor cores read at once: zeros after the channels of each
// position, of an input and of its weights in one kernel. The products with the zeros add nothing to a sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/ops/impl/kernel_parts/pack.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The channels of a padded row: 8 in bfloat16 and in half.
template <class T>
inline constexpr std::int64_t padded_channels = pack_size<T>;

template <class T>
struct PaddedRows {
    const T* from;
    /// Aligned to 16 bytes.
    T* to;
    std::int64_t rows;

    [[nodiscard]] static std::size_t bytes(std::int64_t rows) {
        return static_cast<std::size_t>(rows * padded_channels<T>) * sizeof(T);
    }
};

/// Copies row i of the input, or of the weights after it. `channels` is at most padded_channels<T>.
template <class T>
struct PadChannels {
    PaddedRows<T> input, weights;
    std::int64_t channels;

    CUPOLA_HOST_DEVICE void operator()(std::int64_t i) const {
        // Not a reference to one of the two, for which nvcc would copy the functor to the stack.
        const bool of_input = i < input.rows;
        const std::int64_t row = of_input ? i : i - input.rows;
        const T* const from = (of_input ? input.from : weights.from) + row * channels;
        T* const to = of_input ? input.to : weights.to;
        constexpr int n = pack_size<T>;
        Pack<T, n> padded;
        CUPOLA_UNROLL
        for (int c = 0; c < n; ++c) padded.element[c] = c < channels ? from[c] : T(0.0F);
        pack_at<n>(to + row * n) = padded;
    }
    /// The number of rows of both.
    [[nodiscard]] std::int64_t size() const { return input.rows + weights.rows; }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
