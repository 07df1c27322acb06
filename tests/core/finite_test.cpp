// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <cupola/core/finite.hpp>

using namespace cupola::impl;

namespace {

template <class T>
constexpr bool decided_by_bits() {
    using limits = std::numeric_limits<T>;
    return is_finite(T(0)) && is_finite(-limits::max()) && is_finite(limits::denorm_min()) &&
           !is_finite(limits::infinity()) && !is_finite(-limits::infinity()) && !is_finite(limits::quiet_NaN()) &&
           is_nan(limits::quiet_NaN()) && is_nan(-limits::quiet_NaN()) && is_nan(limits::signaling_NaN()) &&
           !is_nan(limits::infinity()) && !is_nan(-limits::max()) && !is_nan(T(-0.0)) && is_nan(not_a_number<T>());
}

constexpr bool in_memory_as_elsewhere() {
    using limits = std::numeric_limits<float>;
    for (const float value : {0.0F, -0.0F, limits::max(), -limits::denorm_min(), limits::infinity(),
                              -limits::infinity(), limits::quiet_NaN(), -limits::quiet_NaN()})
        if (is_finite_in_memory(value) != is_finite(value)) return false;
    return true;
}

static_assert(decided_by_bits<float>() && decided_by_bits<double>() && in_memory_as_elsewhere());

}  // namespace

TEST_CASE("Whether a number is finite or NaN is decided by its bits, at run time as in a constant expression") {
    CHECK(decided_by_bits<float>());
    CHECK(decided_by_bits<double>());
    CHECK(in_memory_as_elsewhere());
}
