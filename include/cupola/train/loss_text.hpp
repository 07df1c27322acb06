// SPDX-License-Identifier: Apache-2.0
//
// loss_text(loss): a loss as in the log of a training, with at least three significant digits:
//
//   4.68   0.500   0.0123   0.000123   1.23e-05
//
// From 1 on it has two decimals, as in TensorFlow's CIFAR-10 tutorial.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// At least `decimals` digits after the point and at least three significant digits; in scientific notation below
/// 0.0001 and from 1e12 on. "nan", "inf" or "-inf" if the loss is not finite.
[[nodiscard]] std::string loss_text(double loss, int decimals = 2);

inline std::string loss_text(double loss, int decimals) {
    if (impl::is_nan(loss)) return "nan";  // never "-nan"
    constexpr double least = 1e-4, most = 1e12;
    const double magnitude = std::abs(loss);
    if (loss != 0 && (magnitude < least || magnitude >= most)) {
        char digits[16];
        return {digits, std::to_chars(digits, digits + sizeof digits, loss, std::chars_format::scientific, 2).ptr};
    }
    const int leading_zeros = magnitude < 1 && loss != 0 ? -static_cast<int>(std::floor(std::log10(magnitude))) : 0;
    return text(Decimals{loss, std::max(decimals, leading_zeros + 2)});
}

}}  // namespace cupola::CUPOLA_ABI
