// SPDX-License-Identifier: Apache-2.0
//
// Checks of an optimiser's settings, with error messages that the optimisers share.
#pragma once

#include <limits>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_string.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

[[gnu::cold]] void require_not_negative(std::string_view what, double value);

/// Requires a value above 0 as a float too: a smaller one would be 0 there, or the processor could treat it as 0.
[[gnu::cold]] void require_positive(std::string_view what, double value);

/// Requires a value of at least 0 and less than 1: the fraction of an average that is kept at each step.
[[gnu::cold]] void require_fraction(std::string_view what, double value);

}  // namespace impl

namespace impl {

inline void require_not_negative(std::string_view what, double value) {
    require(Number(value).is_finite_float() && value >= 0, what, " must be at least 0, not ", value);
}

inline void require_positive(std::string_view what, double value) {
    require(Number(value).is_finite_float() && value > 0, what, " must be more than 0, not ", value);
    constexpr double smallest = static_cast<double>(std::numeric_limits<float>::min());
    require(value >= smallest, what, " must be at least ", smallest, ", not ", value);
}

inline void require_fraction(std::string_view what, double value) {
    require(is_finite(value) && value >= 0 && value < 1, what, " must be at least 0 and less than 1, not ", value);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
