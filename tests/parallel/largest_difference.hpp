// SPDX-License-Identifier: Apache-2.0
//
// How far the parameters or gradients of two trainings are apart.
#pragma once

#include "../test.hpp"

/// The largest difference of two elements over the largest magnitude in `b`.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0, of = 1e-30;
    for (std::size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
        of = std::max(of, std::abs(static_cast<double>(b[i])));
    }
    return largest / of;
}
