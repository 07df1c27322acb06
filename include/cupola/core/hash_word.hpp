// SPDX-License-Identifier: Apache-2.0
//
// A hash of floats whose parts may be added in any order: the sum of the hashes of pairs of floats, each masked by a
// number that depends on its position.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The difference between the masks of successive words: the golden ratio's fraction, which is also the increment of
/// splitmix64 (Steele, Lea, Flood 2014).
inline constexpr std::uint64_t hash_mask_step = 0x9e3779b97f4a7c15ULL;

/// The product of the two halves of the masked word, plus the masked word. A flipped bit b of the lower half changes it
/// by 2^b (upper half + 1), and one of the upper half by 2^b (lower half + 2^32), up to the sign. Neither is 0 modulo
/// 2^64, so one flipped bit always changes the sum. Every processor has a vector instruction for the product of halves.
CUPOLA_HOST_DEVICE constexpr std::uint64_t hash_of_word(std::uint64_t word, std::uint64_t mask) {
    const std::uint64_t masked = word ^ mask;
    return (masked & 0xffff'ffffU) * (masked >> 32) + masked;
}

/// The mask of the floats 2 `pair` and 2 `pair` + 1, whose bits are the lower and the upper half of a word.
CUPOLA_HOST_DEVICE constexpr std::uint64_t hash_mask(std::int64_t pair) {
    return (static_cast<std::uint64_t>(pair) + 1) * hash_mask_step;
}

/// The hash of the last of an odd number of floats, which is float 2 `pair`.
CUPOLA_HOST_DEVICE constexpr std::uint64_t hash_of_single(std::uint32_t last, std::int64_t pair) {
    return hash_of_word(last, ~hash_mask(pair));
}

/// The hash of a sequence of words, as text: "9e3779b97f4a7c15".
class SequenceHash {
public:
    void add(std::uint64_t word) { sum_ += hash_of_word(word, hash_mask(count_++)); }
    void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
    [[nodiscard]] std::string text() const {
        char digits[20];
        std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum_));
        return digits;
    }

private:
    std::uint64_t sum_ = 0;
    std::int64_t count_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
