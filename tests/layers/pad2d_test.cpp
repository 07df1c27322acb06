// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/crop2d.hpp, cupola/layers/impl/image_sides.hpp
//
// Pad2d adds zeros, Crop2d takes rows and columns away, and each is the other's gradient.
#include "../test.hpp"

#include <cupola/layers/crop2d.hpp>
#include <cupola/layers/pad2d.hpp>

#include "../reference/compare.hpp"
#include "separable_map.hpp"

namespace {

static_assert(LayerOn<Pad2d<1>, AnyDevice> && LayerOn<Crop2d<1>, AnyDevice>);
static_assert(Pad2d<2>::output(Shape{5, 6, 3}).shape == Shape{9, 10, 3});
static_assert(Pad2d<1, 2>::output(Shape{5, 6, 3}).shape == Shape{7, 10, 3});
static_assert(Pad2d<1, 2, 3, 4>::output(Shape{5, 6, 3}).shape == Shape{8, 13, 3});
static_assert(Crop2d<2>::output(Shape{5, 6, 3}).shape == Shape{1, 2, 3});
static_assert(Crop2d<1, 2>::output(Shape{5, 6, 3}).shape == Shape{3, 2, 3});
static_assert(Crop2d<1, 2, 3, 0>::output(Shape{5, 6, 3}).shape == Shape{2, 3, 3});
static_assert(description_of<Pad2d<2>>() == "Pad2d 2" && description_of<Crop2d<1, 2>>() == "Crop2d 1 x 2" &&
              description_of<Pad2d<1, 2, 3, 4>>() == "Pad2d 1, 2, 3, 4");

template <class L>
constexpr std::string_view error_of(const Shape& input = {5, 6, 3}) {
    return L::output(input).error;
}
constexpr std::string_view sides = "expects its rows and columns: n, (height, width), or (top, bottom, left, right)";
static_assert(error_of<Pad2d<>>() == sides && error_of<Pad2d<1, 2, 3>>() == sides &&
              error_of<Crop2d<1, 2, 3>>() == sides);
static_assert(error_of<Pad2d<1, -1>>() == "has a negative number of rows or columns: Crop2d removes them");
static_assert(error_of<Crop2d<-1>>() == "has a negative number of rows or columns: Pad2d adds them");
static_assert(error_of<Pad2d<1>>({16}) == "expects height x width x channels");
static_assert(error_of<Crop2d<1>>({16}) == "expects height x width x channels");
static_assert(error_of<Pad2d<1 << 30>>() == "adds more than 2^29 rows or columns");
static_assert(error_of<Pad2d<1>>({4294967300, 1, 1}) == "has an input of more than 2^29 rows or columns");
static_assert(error_of<Pad2d<1 << 29>>() == "has an output of more than 2^29 rows or columns");
static_assert(error_of<Crop2d<1>>({1 << 30, 4, 1}) == "has an input of more than 2^29 rows or columns");
constexpr std::string_view nothing_left =
    "leaves nothing of its input: it takes away 2 rows above and 3 below, 1 columns on the left and 1 on the right";
static_assert(error_of<Crop2d<2, 3, 1, 1>>() == nothing_left &&
              error_of<Crop2d<2, 3, 1, 1>>({4, 9, 1}) == nothing_left);
static_assert(error_of<Crop2d<0, 3>>() ==
              "leaves nothing of its input: it takes away 0 rows above and 0 below, 3 columns on the left and 3 on the "
              "right");

/// Output i is input i - before.
template <std::int64_t before>
double moved(std::int64_t, std::int64_t, std::int64_t i, std::int64_t k) {
    return i - before == k ? 1 : 0;
}

}  // namespace

TYPED_TEST_CASE("Pad2d and Crop2d move an image, and their gradients move it back", D, DevicesAndElements) {
    separable_map::agrees<Pad2d<1>, D>({3, 4, 16}, 2, moved<1>, moved<1>);
    separable_map::agrees<Pad2d<1, 2, 0, 3>, D>({2, 3, 5}, 3, moved<1>, moved<0>);
    separable_map::agrees<Crop2d<1>, D>({5, 4, 19}, 2, moved<-1>, moved<-1>);
    separable_map::agrees<Crop2d<2, 0, 0, 3>, D>({3, 6, 2}, 2, moved<-2>, moved<0>);
}

TYPED_TEST_CASE("Pad2d and Crop2d copy a NaN to its place only", D, DevicesAndElements) {
    operation_run::Problem problem;
    problem.input = {1, 2, 1};
    problem.output = {1, 4, 1};
    problem.x = {std::numeric_limits<float>::quiet_NaN(), 3};
    problem.dy = {1, 2, std::numeric_limits<float>::infinity(), 4};
    const operation_run::Outcome outcome =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<Pad2d<0, 1>>(build); });
    CHECK(std::isnan(outcome.output[1]));
    CHECK((outcome.output[0] == 0 && outcome.output[2] == 3 && outcome.output[3] == 0));
    CHECK(outcome.input_gradient == reference::Floats{2, std::numeric_limits<float>::infinity()});
}
