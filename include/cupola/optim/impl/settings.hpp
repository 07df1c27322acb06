// SPDX-License-Identifier: Apache-2.0
//
// What an optimiser's settings may be, with error messages that the optimisers share.
#pragma once

#include <cmath>
#include <limits>
#include <string_view>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

[[gnu::cold]] inline void require_not_negative(std::string_view what, double value) {
    require(std::isfinite(value) && value >= 0, what, " is at least 0, not ", value);
}

/// More than 0 as a float too: a smaller number would be 0 there, or could be taken for it by the processor.
[[gnu::cold]] inline void require_positive(std::string_view what, double value) {
    require(std::isfinite(value) && value > 0, what, " is more than 0, not ", value);
    constexpr double smallest = std::numeric_limits<float>::min();
    require(value >= smallest, what, " is at least ", smallest, ", not ", value);
}

/// For what is kept of an average at each step.
[[gnu::cold]] inline void require_fraction(std::string_view what, double value) {
    require(value >= 0 && value < 1, what, " is at least 0 and less than 1, not ", value);
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
