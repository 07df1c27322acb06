// SPDX-License-Identifier: Apache-2.0
//
// Crop2d<sides...>: an image without rows and columns at its sides (ops/resampling.hpp): Crop2d<n> without n on all
// sides, Crop2d<height, width> above and below, and left and right, Crop2d<top, bottom, left, right>.
//
//   input   height x width x channels
//   output  height - top - bottom x width - left - right x channels
//
// The gradient of what is left out is zero.
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/impl/image_sides.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/resampling.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t... numbers>
struct Crop2d {
    static constexpr impl::ImageSides sides = impl::image_sides<numbers...>();
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};
    static constexpr LayerDescription description = sides.description("Crop2d");
    // A message shows the type's name without its defaults, and not what it takes away in all.
    static constexpr LayerDescription nothing_left_error{"leaves nothing of its input: it takes away ",
                                                         sides.top,
                                                         " rows above and ",
                                                         sides.bottom,
                                                         " below, ",
                                                         sides.left,
                                                         " columns on the left and ",
                                                         sides.right,
                                                         " on the right"};

    static constexpr ResamplingShape shape(const Shape& input) {
        return {{ResamplingKind::shift, input.height(), input.height() - sides.top - sides.bottom, -sides.top},
                {ResamplingKind::shift, input.width(), input.width() - sides.left - sides.right, -sides.left},
                input.channels()};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!sides.known)
            return ShapeError{"expects its rows and columns: n, (height, width), or (top, bottom, left, right)"};
        if (sides.least() < 0) return ShapeError{"has a negative number of rows or columns: Pad2d adds them"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (!are_window_extents({input.height(), input.width()}))
            return ShapeError{"has an input of more than 2^29 rows or columns"};
        if (sides.too_large()) return ShapeError{nothing_left_error.c_str()};
        const ResamplingShape s = shape(input);
        if (s.height.output < 1 || s.width.output < 1) return ShapeError{nothing_left_error.c_str()};
        return Shape{s.height.output, s.width.output, input.channels()};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        return GraphOperator("Slice")
            .previous()
            .constant(sides.top, sides.left)
            .constant(input.height() - sides.bottom, input.width() - sides.right)
            .constant(2, 3);
    }

    template <class BuildContext>
    static FactoryOf<ops::Resampling, BuildContext, ResamplingShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
