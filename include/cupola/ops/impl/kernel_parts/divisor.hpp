// SPDX-License-Identifier: Apache-2.0
//
// Division by a number that is constant during a kernel, as a product and a shift: a GPU's own integer division takes
// about twenty instructions for 32 bits, and a hundred for 64. Source: Granlund, Montgomery, "Division by invariant
// integers using multiplication", PLDI 1994.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class Divisor {
public:
    Divisor() = default;
    /// The divisor must be in [1, 2^31).
    explicit Divisor(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
        std::uint32_t bits = 0;
        while ((std::int64_t{1} << bits) < divisor) ++bits;
        shift_ = 31 + bits;
        multiplier_ = static_cast<std::uint32_t>((std::uint64_t{1} << shift_) / divisor_ + 1);
    }

    struct Parts {
        std::int64_t quotient, remainder;
    };

    /// For n >= 0: exact for every n, and fast for one below 2^31.
    [[nodiscard]] CUPOLA_HOST_DEVICE Parts divide(std::int64_t n) const {
        if (n < std::int64_t{1} << 31) {
            const auto low = static_cast<std::uint32_t>(n);
            const auto quotient = static_cast<std::uint32_t>((std::uint64_t{low} * multiplier_) >> shift_);
            return {quotient, low - quotient * divisor_};
        }
        const std::int64_t quotient = n / divisor_;
        return {quotient, n - quotient * divisor_};
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE int quotient(int n) const {
        return static_cast<int>((static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)) * multiplier_) >> shift_);
    }

private:
    std::uint32_t divisor_ = 1, multiplier_ = 0x8000'0001U, shift_ = 31;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
