// SPDX-License-Identifier: Apache-2.0
//
// The emulator's random numbers: SplitMix64, which takes few instructions and is reproducible from its seed.
#pragma once

#include "../../standard.hpp"

namespace cupola::emulator {

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9E37'79B9'7F4A'7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBULL;
        return z ^ (z >> 31);
    }
    /// A number in [0, count); count is less than 2^32.
    std::size_t below(std::size_t count) { return static_cast<std::size_t>((next() >> 32) * count >> 32); }

private:
    std::uint64_t state_;
};

}  // namespace cupola::emulator
