// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <concepts>

#include <cupola/core/fixed_array.hpp>
#include <cupola/core/span_of.hpp>

using impl::span_of;

TEST_CASE("a span of a pointer and a number has these elements") {
    std::string words[] = {"first", "second", "third"};
    const std::span<std::string> two = span_of(words + 1, 2);
    CHECK(two.data() == words + 1);
    REQUIRE(two.size() == 2);
    two[1] = "last";
    CHECK(words[2] == "last");
    CHECK(span_of<const std::string>(words, 3)[0] == "first");
    CHECK(span_of<int>(nullptr, 0).empty());
    CHECK(span_of<int>(nullptr, 0).data() == nullptr);
}

TEST_CASE("a span of a container has its elements, which are const if the container is") {
    std::vector<long> numbers{3, 5, 7};
    const std::vector<long>& same = numbers;
    static_assert(std::same_as<decltype(span_of(numbers)), std::span<long>>);
    static_assert(std::same_as<decltype(span_of(same)), std::span<const long>>);
    span_of(numbers)[2] = 9;
    CHECK(span_of(same).data() == numbers.data());
    CHECK(span_of(same).size() == 3);
    CHECK(span_of(same).back() == 9);
}

TEST_CASE("a fixed array gives a span of its elements") {
    FixedArray<const char*> names(2);
    const FixedArray<const char*>& same = names;
    static_assert(std::same_as<decltype(same.span()), std::span<const char* const>>);
    names.span()[1] = "last";
    CHECK(same.span().size() == 2);
    CHECK(same.span().data() == names.data());
    CHECK(same[1] == same.span().back());
    CHECK(FixedArray<int>().span().empty());
}
