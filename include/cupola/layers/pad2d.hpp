// SPDX-License-Identifier: Apache-2.0
//
// Pad2d<sides...>: rows and columns of zeros around an image (ops/resampling.hpp): Pad2d<n> on all sides,
// Pad2d<height, width> above and below, and left and right, Pad2d<top, bottom, left, right>.
//
//   input   height x width x channels
//   output  top + height + bottom x left + width + right x channels
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/impl/image_sides.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/resampling.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t... numbers>
struct Pad2d {
    static constexpr impl::ImageSides sides = impl::image_sides<numbers...>();
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};
    static constexpr LayerDescription description = sides.description("Pad2d");

    static constexpr ResamplingShape shape(const Shape& input) {
        return {{ResamplingKind::shift, input.height(), sides.top + input.height() + sides.bottom, sides.top},
                {ResamplingKind::shift, input.width(), sides.left + input.width() + sides.right, sides.left},
                input.channels()};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!sides.known)
            return ShapeError{"expects its rows and columns: n, (height, width), or (top, bottom, left, right)"};
        if (sides.least() < 0) return ShapeError{"has a negative number of rows or columns: Crop2d removes them"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (sides.too_large()) return ShapeError{"adds more than 2^29 rows or columns"};
        if (!are_window_extents({input.height(), input.width()}))
            return ShapeError{"has an input of more than 2^29 rows or columns"};
        const ResamplingShape s = shape(input);
        if (!are_window_extents({s.height.output, s.width.output}))
            return ShapeError{"has an output of more than 2^29 rows or columns"};
        return Shape{s.height.output, s.width.output, input.channels()};
    }

    static constexpr GraphOperators onnx(const Shape&) {
        return GraphOperator("Pad").previous().constant(std::int64_t{0}, std::int64_t{0}, sides.top, sides.left,
                                                        std::int64_t{0}, std::int64_t{0}, sides.bottom, sides.right);
    }

    template <class BuildContext>
    static FactoryOf<ops::Resampling, BuildContext, ResamplingShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
