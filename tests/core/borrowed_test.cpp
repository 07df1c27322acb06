// SPDX-License-Identifier: Apache-2.0
//
// What is kept beyond a call refers to what lasts. temporary_that_is_kept in tests/compile_fail/cases/data.cpp has the temporaries.
#include <cupola/core/borrowed.hpp>

#include "../test.hpp"

#include <cupola/core/function_ref.hpp>

static_assert(std::is_constructible_v<BorrowedSpan<float>, std::vector<float>&>);
static_assert(!std::is_constructible_v<BorrowedSpan<float>, std::vector<double>&>);
static_assert(!std::is_constructible_v<BorrowedString, std::vector<float>&>);
static_assert(BorrowedString("box").size() == 3);
// A FunctionRef refers to the pointer, not to what that points to.
using Function = void (*)();
static_assert(impl::outlives_expression<Function&, FunctionRef<void()>>);
static_assert(!impl::outlives_expression<Function, FunctionRef<void()>>);
static_assert(impl::outlives_expression<const char*, std::string_view>);

TEST_CASE("variables, literals and views are referred to") {
    const std::string name = "a name that is too long to be stored in place";
    CHECK(BorrowedString(name).data() == name.data());
    CHECK(BorrowedString(std::string_view(name)).data() == name.data());
    CHECK(BorrowedString(name.c_str()).data() == name.data());
    CHECK(BorrowedString().empty());
    std::vector<float> values{1, 2, 3};
    std::array<float, 2> two{4, 5};
    float three[] = {6, 7, 8};
    CHECK(BorrowedSpan<float>(values).data() == values.data());
    CHECK(BorrowedSpan<float>(std::span(values).first(2)).size() == 2);
    CHECK(BorrowedSpan<float>(std::as_const(two)).data() == two.data());
    CHECK(BorrowedSpan<float>(three).size() == 3);
}

TEST_CASE("a copy refers to the same, not to what it was copied from") {
    int calls = 0;
    const auto count = [&] { ++calls; };
    FunctionRef<void()> plain;
    {
        Borrowed<FunctionRef<void()>> kept(count);
        plain = FunctionRef<void()>(kept);
        kept = {};
    }
    plain();
    CHECK(calls == 1);
}
