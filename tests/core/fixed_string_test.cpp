// SPDX-License-Identifier: Apache-2.0
//
// Strings and numbers as template arguments.
#include "../test.hpp"

#include <concepts>

#include <cupola/core/fixed_string.hpp>

template <FixedString name>
struct Tagged {
    static constexpr std::string_view value = name;
};
template <Number number>
struct Scaled {
    static constexpr double value = number;
};

static_assert(Tagged<"conv1">::value == "conv1");
static_assert(Tagged<"">::value.empty(), "the terminating zero is no part of the text");
static_assert(std::same_as<Tagged<"local3">, Tagged<"local3">>);
static_assert(!std::same_as<Tagged<"local3">, Tagged<"local4">>);
static_assert(!std::same_as<Tagged<"a">, Tagged<"ab">>);
static_assert(FixedString("softmax_linear").view().size() == 14);
static_assert(FixedString("x") == FixedString("x"));

static_assert(Scaled<0.004>::value == 0.004, "every bit of a double survives");
static_assert(Scaled<0.1>::value == 0.1 && Scaled<-1e-300>::value == -1e-300 && Scaled<3>::value == 3.0);
static_assert(std::same_as<Scaled<0.5>, Scaled<1.0 / 2.0>>);
static_assert(!std::same_as<Scaled<0.1>, Scaled<0.1000000000000001>>);
static_assert(Number() == Number(0.0));
static_assert(Number(-3e38).is_finite_float() && Number(1e-300).is_finite_float() && !Number(4e38).is_finite_float() &&
              !Number(-__builtin_inf()).is_finite_float() && !Number(__builtin_nan("")).is_finite_float());

TEST_CASE("fixed strings convert to string views at run time") {
    const FixedString name("conv2");
    const std::string_view text = name;
    CHECK(text == "conv2");
    CHECK(text.size() == 5);
}
