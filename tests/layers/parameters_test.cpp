// SPDX-License-Identifier: Apache-2.0
//
// What a parameter says of its layout in files, and which of it is an error.
#include <cupola/layers/parameters.hpp>

#include "../test.hpp"

#include <cupola/layers.hpp>

namespace {

constexpr const char* layout_problem(FileLayout layout, const Shape& shape, const Shape& input = {5}) {
    return problem_of_layout({.name = "weight", .shape = shape, .layout = layout}, input);
}

static_assert(layout_problem(FileLayout::as_here, {}) == nullptr &&
              layout_problem(FileLayout::channels_first, {4}) == nullptr &&
              layout_problem(FileLayout::channels_second, {4, 5}) == nullptr &&
              layout_problem(FileLayout::channels_second, {4, 3, 3, 5}) == nullptr &&
              layout_problem(FileLayout::input_features, {5}) == nullptr &&
              layout_problem(FileLayout::input_features, {7, 3, 5}, {8, 8, 5}) == nullptr);

static_assert(Conv2d<4, 3>::parameters({8, 8, 2}).list[0].layout == FileLayout::channels_second &&
              Conv2d<4, 3>::parameters({8, 8, 2}).list[1].layout == FileLayout::as_here &&
              Linear<4>::parameters({5}).list[0].layout == FileLayout::input_features &&
              Linear<4>::parameters({5}).list[1].layout == FileLayout::as_here &&
              Embedding<4, 3>::parameters({5}).list[0].layout == FileLayout::as_here &&
              BatchNorm2d<>::parameters({8, 8, 2}).list[1].layout == FileLayout::input_features &&
              BatchNorm2d<>::buffers({8, 8, 2}).list[1].layout == FileLayout::input_features);

}  // namespace

TEST_CASE("a layout that does not fit the extents of its parameter is an error") {
    CHECK(std::string(layout_problem(FileLayout::channels_first, {})) ==
          "has a parameter of the layout channels_first without an extent");
    CHECK(std::string(layout_problem(FileLayout::channels_second, {5})) ==
          "has a parameter of the layout channels_second with fewer than two extents");
    for (const Shape& shape : {Shape{}, Shape{4}, Shape{5, 4}}) {
        CHECK(std::string(layout_problem(FileLayout::input_features, shape)) ==
              "has a parameter of the layout input_features whose last extent is not that of its input");
    }
    CHECK(layout_problem(FileLayout::input_features, {5}, {}) != nullptr);
}

TEST_CASE("a parameter without a name has one in messages") {
    CHECK(shown_name({.name = "weight"}) == "weight");
    CHECK(shown_name({}) == "parameter");
}
