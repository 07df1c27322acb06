// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <mutex>
#include <new>

#include <cupola/core/fixed_array.hpp>

namespace {

constexpr int sum_of_squares(std::size_t count) {
    FixedArray<int> squares(count);
    for (std::size_t i = 0; i < count; ++i) squares[i] = static_cast<int>(i * i);
    int sum = 0;
    for (const int square : squares) sum += square;
    return sum;
}

struct Counted : NotCopied {
    static inline int alive = 0;
    Counted() { ++alive; }
    ~Counted() { --alive; }
    std::string name = "made";
};

}  // namespace

TEST_CASE("a fixed array is made at compile time too") { static_assert(sum_of_squares(4) == 0 + 1 + 4 + 9); }

TEST_CASE("the elements of a fixed array begin with their initial values") {
    const FixedArray<double> numbers(3);
    CHECK(numbers.size() == 3);
    for (const double number : numbers) CHECK(number == 0);
    const FixedArray<int*> pointers(2);
    CHECK(pointers[1] == nullptr);
    CHECK(FixedArray<int>().empty());
    CHECK(FixedArray<int>(0).empty());
    CHECK(FixedArray<int>(0).begin() == nullptr);
}

TEST_CASE("each element of a fixed array has the initial values of its members") {
    struct Place {
        int first = 3;
        double second = 0.5;
        const char* third = nullptr;
    };
    for (const std::size_t size : {1U, 2U, 7U, 64U, 1001U}) {
        const FixedArray<Place> places(size);
        CHECK(std::all_of(places.begin(), places.end(), [](const Place& each) {
            return each.first == 3 && each.second == 0.5 && each.third == nullptr;
        }));
    }
    struct alignas(64) Wide {
        float lanes[16];
    };
    const FixedArray<Wide> wide(3);
    CHECK(reinterpret_cast<std::uintptr_t>(wide.data()) % alignof(Wide) == 0);
    CHECK(wide[2].lanes[15] == 0);
    CHECK_THROWS_AS(FixedArray<Place>(static_cast<std::size_t>(-1) / 8), std::bad_array_new_length);
}

TEST_CASE("the elements of a fixed array need not be copied or moved, and are destroyed with it") {
    static_assert(!std::is_copy_constructible_v<FixedArray<int>>);
    CHECK(FixedArray<std::mutex>(2).size() == 2);
    {
        FixedArray<Counted> elements(5);
        CHECK(Counted::alive == 5);
        CHECK(elements[4].name == "made");
        elements.keep_first(2);
        CHECK(elements.size() == 2);
        CHECK(elements.end() - elements.begin() == 2);
    }
    CHECK(Counted::alive == 0);
}

TEST_CASE("a fixed array copies a span, and is one") {
    const int given[] = {3, 1, 2};
    FixedArray<int> copy{std::span<const int>(given)};
    const std::span<int> elements(copy);
    elements[0] = 4;
    CHECK(given[0] == 3);
    CHECK(copy[0] == 4);
    CHECK(std::span<const int>(copy).size() == 3);
}

TEST_CASE("a fixed array moves its memory") {
    FixedArray<std::string> from(2);
    from[1] = "second";
    const std::string* const place = from.data();
    FixedArray<std::string> to(std::move(from));
    CHECK(to.data() == place);
    CHECK(from.empty());  // NOLINT(bugprone-use-after-move): it is empty then
    FixedArray<std::string> other(1);
    other = std::move(to);
    CHECK(other.data() == place);
    CHECK(other[1] == "second");
}
