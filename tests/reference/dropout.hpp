// SPDX-License-Identifier: Apache-2.0
//
// Dropout's mask by a second implementation of Philox 4x32-10 (from the paper's figure, not from Cupola's header): numbers
// of sample `sample` of layer `layer` in step `step` have key = seed and counter = (element / 4, sample, step,
// purpose 4 in the upper byte, xor the layer).
#pragma once

#include "../standard.hpp"
#include "compare.hpp"

namespace reference {

inline void philox(std::uint32_t counter[4], std::uint32_t key0, std::uint32_t key1) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t left = std::uint64_t{0xD2511F53U} * counter[0];
        const std::uint64_t right = std::uint64_t{0xCD9E8D57U} * counter[2];
        const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); };
        const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value & 0xFFFFFFFFU); };
        const std::uint32_t next[4] = {high(right) ^ counter[1] ^ key0, low(right), high(left) ^ counter[3] ^ key1,
                                       low(left)};
        for (int i = 0; i < 4; ++i) counter[i] = next[i];
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
}

struct Dropout {
    std::uint64_t seed;
    std::uint32_t layer, step;
    float rate;

    /// The factor of each element: 0, or 1 / (1 - rate).
    [[nodiscard]] Doubles factors(std::int64_t first_sample, std::int64_t batch, std::int64_t features) const {
        Doubles result;
        for (std::int64_t n = first_sample; n < first_sample + batch; ++n)
            for (std::int64_t i = 0; i < features; ++i) {
                std::uint32_t words[4] = {static_cast<std::uint32_t>(i / 4), static_cast<std::uint32_t>(n), step,
                                          0x04000000U ^ layer};
                philox(words, static_cast<std::uint32_t>(seed & 0xFFFFFFFFU), static_cast<std::uint32_t>(seed >> 32));
                const double uniform = static_cast<double>(words[i % 4] >> 8) / 16777216.0;
                result.push_back(uniform < static_cast<double>(rate) ? 0.0 : 1.0 / (1.0 - static_cast<double>(rate)));
            }
        return result;
    }
};

}  // namespace reference
