// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers: Philox 4x32 with 10 rounds.
//
// A number is a pure function of (seed, domain, epoch, sample or parameter index, draw). There is no state to advance
// or to share, so a run that is resumed, split over replicas or prefetched by any number of workers has the same
// numbers. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the tests check
// the vectors published with it.
#pragma once

#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// `count` words: an array that kernels can use too, unlike std::array.
template <std::size_t count>
struct RandomWords {
    std::uint32_t word[count];

    CUPOLA_HOST_DEVICE constexpr std::uint32_t& operator[](std::size_t i) { return word[i]; }
    CUPOLA_HOST_DEVICE constexpr const std::uint32_t& operator[](std::size_t i) const { return word[i]; }
    [[nodiscard]] static constexpr std::size_t size() { return count; }
    [[nodiscard]] constexpr const std::uint32_t* begin() const { return word; }
    [[nodiscard]] constexpr const std::uint32_t* end() const { return word + count; }
    [[nodiscard]] friend constexpr auto operator<=>(const RandomWords&, const RandomWords&) = default;
};

/// Four random words from a counter of four words and a key of two.
[[nodiscard]] CUPOLA_HOST_NOINLINE CUPOLA_HOST_DEVICE constexpr RandomWords<4> philox4x32(RandomWords<4> counter,
                                                                                          RandomWords<2> key) {
    constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
    constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = multiplier0 * counter[0];
        const std::uint64_t product1 = multiplier1 * counter[2];
        counter = {
            static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
            static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
        key[0] += weyl0;
        key[1] += weyl1;
    }
    return counter;
}

/// The purpose of a random number. Two domains never use the same number.
enum class RngDomain : std::uint32_t {
    initialization = 1,
    shuffle = 2,
    augmentation = 3,
    dropout = 4,
    split = 5,
    sampling = 6,
    user = 128
};

/// The numbers of one (seed, domain, epoch, index): `index` is the number of a sample or a parameter, `epoch` may be
/// any 32-bit counter (dropout uses the step).
class RandomStream {
public:
    CUPOLA_HOST_DEVICE constexpr RandomStream(std::uint64_t seed, RngDomain domain, std::uint32_t epoch,
                                              std::uint64_t index)
        : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          index_(static_cast<std::uint32_t>(index)),
          epoch_(epoch),
          domain_((static_cast<std::uint32_t>(domain) << 24) ^ static_cast<std::uint32_t>(index >> 32)) {}

    /// The `block`-th four words of this stream.
    [[nodiscard]] CUPOLA_HOST_DEVICE constexpr RandomWords<4> words(std::uint32_t block) const {
        return philox4x32({block, index_, epoch_, domain_}, key_);
    }

private:
    RandomWords<2> key_;
    std::uint32_t index_, epoch_, domain_;
};

/// Uniform in [0, 1): the upper 24 bits, so every value is exact in float.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr float uniform(std::uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24F;
}

/// Uniform in [low, high), of 2^24 values, but for the rounding of the sum.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr double uniform_between(std::uint32_t word, double low, double high) {
    return low + (high - low) * static_cast<double>(uniform(word));
}

/// Uniform in [0, count), by the multiply-shift method: biased by less than count / 2^32.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr std::uint32_t uniform_below(std::uint32_t word, std::uint32_t count) {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(word) * count) >> 32);
}

/// One standard normal number from two words (Box and Muller).
[[nodiscard]] CUPOLA_HOST_DEVICE inline double standard_normal(std::uint32_t word0, std::uint32_t word1) {
    constexpr double two_pi = 6.283185307179586;
    const double u = (static_cast<double>(word0) + 0.5) * 0x1p-32;
    const double v = static_cast<double>(word1) * 0x1p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(two_pi * v);
}

}}  // namespace cupola::CUPOLA_ABI
