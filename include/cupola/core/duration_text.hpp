// SPDX-License-Identifier: Apache-2.0
//
// A time to wait, as programs show it: 1:02:03.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include <cupola/core/abi.hpp>
#include <cupola/core/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Seconds as h:mm:ss, rounded down; "-:--:--" for a value below 0, a NaN, or a million hours and more.
[[nodiscard]] std::string duration_text(double seconds);

inline std::string duration_text(double seconds) {
    constexpr double too_long = 3600e6;
    if (!impl::is_finite(seconds) || seconds < 0 || seconds >= too_long) return "-:--:--";
    const auto whole = static_cast<std::int64_t>(seconds);
    char digits[32];
    std::snprintf(digits, sizeof digits, "%lld:%02d:%02d", static_cast<long long>(whole / 3600),
                  static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
    return digits;
}

}}  // namespace cupola::CUPOLA_ABI
