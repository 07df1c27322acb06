// SPDX-License-Identifier: Apache-2.0
#include <cupola/core/function_ref.hpp>

#include "../test.hpp"

namespace {

int twice(int value) { return 2 * value; }
std::string shown(FunctionRef<std::string(int)> function) { return function ? function(3) : "nothing"; }

static_assert(std::is_convertible_v<int (*&)(int), FunctionRef<int(int)>>);
static_assert(!std::is_convertible_v<std::string (*)(int), FunctionRef<int(int)>>);
static_assert(sizeof(FunctionRef<void()>) == 2 * sizeof(void*));

}  // namespace

TEST_CASE("a reference calls what it refers to, which keeps its state") {
    int calls = 0;
    const auto count = [&calls](int value) {
        ++calls;
        return std::to_string(value);
    };
    CHECK(shown(count) == "3");
    CHECK(shown(count) == "3");
    CHECK(calls == 2);
    auto next = [number = 0]() mutable { return ++number; };
    const FunctionRef<int()> reference = next;
    CHECK(reference() == 1);
    CHECK(FunctionRef<int()>(reference)() == 2);
    CHECK(next() == 3);
    int (*const pointer)(int) = &twice;
    CHECK(FunctionRef<int(int)>(pointer)(4) == 8);
}

TEST_CASE("an empty reference compares as empty") {
    CHECK(shown({}) == "nothing");
    CHECK_FALSE(FunctionRef<void()>());
}
