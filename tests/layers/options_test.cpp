// SPDX-License-Identifier: Apache-2.0
//
// Options of layers: found by their type, in any order, each once.
#include "../test.hpp"

#include <cupola/layers/options.hpp>

static_assert(impl::option_or(StrideOption{}).value == 1);
static_assert(impl::option_or(StrideOption{}, no_bias, stride(3), valid).value == 3);
static_assert(impl::option_or(Padding::same, stride(3), valid) == Padding::valid);
static_assert(impl::option_or(Padding::same, stride(3)) == Padding::same);
static_assert(!impl::option_or(BiasOption{}, stride(3), no_bias).value);
static_assert(impl::option_or(WeightsOption{constant(1.0)}, biases(constant(2.0))).value == constant(1.0),
              "initialisers of weights and of biases are not mistaken for each other");
static_assert(impl::option_or(BiasesOption{}, biases(constant(2.0))).value == constant(2.0));
static_assert(impl::one_of<StrideOption, BiasOption, StrideOption> && !impl::one_of<int, BiasOption, StrideOption>);

static_assert(impl::given_once() && impl::given_once(no_bias, stride(2), valid));
static_assert(!impl::given_once(weights(constant(1)), no_bias, weights(constant(1))));

TEST_CASE("options are values that can be named before they are used") {
    constexpr auto small = weights(truncated_normal(0.05));
    CHECK(small.value == truncated_normal(0.05));
    CHECK(stride(2) == StrideOption{2});
    CHECK_FALSE(stride(2) == stride(1));
}
