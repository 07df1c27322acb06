// SPDX-License-Identifier: Apache-2.0
//
// UpsampleBilinear2d<factor>: upsampling with linear interpolation between the centres of neighbouring pixels
// (ops/resampling.hpp), as PyTorch's `Upsample(scale_factor=factor, mode="bilinear", align_corners=False)`.
// PyTorch's `UpsamplingBilinear2d` aligns the corners: it has other values.
//
//   input   height x width x channels
//   output  height * factor x width * factor x channels
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/resampling.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t factor>
struct UpsampleBilinear2d {
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};
    static constexpr LayerDescription description = LayerDescription("UpsampleBilinear2d ", factor, " x ", factor);
    static constexpr LayerDescription wrong_size = impl::size_error({{"factor", factor}});

    static constexpr ResamplingShape shape(const Shape& input) {
        const auto axis = [](std::int64_t size) { return ResampledAxis{ResamplingKind::linear, size, size * factor}; };
        return {axis(input.height()), axis(input.width()), input.channels()};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        const Shape result{saturating_product(input.height(), factor), saturating_product(input.width(), factor),
                           input.channels()};
        if (!are_window_extents({result.height(), result.width()}))
            return ShapeError{"has an output of more than 2^29 rows or columns"};
        return result;
    }

    static constexpr GraphOperators onnx(const Shape&) {
        const double scale = static_cast<double>(factor);
        return GraphOperator("Resize")
            .input()
            .nothing()
            .constant(GraphNumbers{GraphNumbers::Type::float32, {{1, 1, scale, scale}, 4}})
            .text("mode", "linear")
            .text("coordinate_transformation_mode", "half_pixel");
    }

    template <class BuildContext>
    static FactoryOf<ops::Resampling, BuildContext, ResamplingShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
