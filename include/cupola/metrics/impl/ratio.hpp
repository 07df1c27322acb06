// SPDX-License-Identifier: Apache-2.0
//
// A quotient of two counts.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// a / b; NaN for 0 / 0.
[[nodiscard]] constexpr double ratio(std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
