// SPDX-License-Identifier: Apache-2.0
//
// Extents as values and as types.
#include "../test.hpp"

#include <concepts>

#include <cupola/core/extents.hpp>

static_assert(Shape{24, 24, 3}.rank == 3 && Shape{24, 24, 3}.size() == 1728);
static_assert(Shape{24, 20, 3}.height() == 24 && Shape{24, 20, 3}.width() == 20 && Shape{24, 20, 3}.channels() == 3);
static_assert(Shape{10}.channels() == 10, "the last extent of a flat sample is its features");
static_assert(Shape{}.rank == 0 && Shape{}.size() == 1);
static_assert(Shape{5, 0}.size() == 0);
static_assert(Shape{24, 24} != Shape{24, 24, 1}, "rank counts");
static_assert(Shape{24, 24, 3} != Shape{24, 3, 24});
static_assert(Shape{1'000'000, 1'000'000}.size() == 1'000'000'000'000, "products are 64 bits wide");

static_assert(Shape{1, 2}.has_elements() && !Shape{}.has_elements() && !Shape{2, 0}.has_elements());
static_assert(!Shape{-2, -3}.has_elements());
static_assert(Shape{3, 4}.is_at_most(12) && !Shape{3, 4}.is_at_most(11));
static_assert(!Shape{1LL << 62, 1LL << 62}.is_at_most(1LL << 62), "the product has more than 64 bits");

static_assert(Extents<24, 24, 3>{} == Extents<24, 24, 3>{});
static_assert(Extents<24, 24, 3>{} != Extents<24, 24>{});
static_assert(Extents<10>::rank == 1 && Extents<10>::size() == 10 && Extents<>::size() == 1 && Extents<>::rank == 0);
static_assert(Extents<24, 24, 3>::shape == Shape{24, 24, 3});
static_assert(Shape(Extents<3, 2>{}) == Shape{3, 2}, "extents convert to a shape");
static_assert(Shape(Extents<>{}) == Shape{});
static_assert(std::same_as<ExtentsOf<Shape{24, 24, 64}>, Extents<24, 24, 64>>);
static_assert(std::same_as<ExtentsOf<Shape{}>, Extents<>>);
static_assert(std::same_as<ExtentsOf<Extents<7>{}>, Extents<7>>);

template <Shape shape>
struct TakesShape {
    static constexpr std::int64_t size = shape.size();
};
static_assert(TakesShape<Shape{4, 5}>::size == 20, "a shape can be a template argument");

TEST_CASE("a shape prints as its extents with crosses between") {
    CHECK(to_string(Shape{24, 24, 3}) == "24 x 24 x 3");
    CHECK(to_string(Shape{10}) == "10");
    CHECK(to_string(Shape{}).empty());
    CHECK(to_string(Extents<2304>{}) == "2304");
}
