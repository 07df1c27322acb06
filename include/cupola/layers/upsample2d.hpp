// SPDX-License-Identifier: Apache-2.0
//
// Upsample2d<factor>: upsampling by repetition (ops/upsampling.hpp), each pixel a square of factor x factor pixels.
//
//   input   height x width x channels
//   output  height * factor x width * factor x channels
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/upsampling.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t factor>
struct Upsample2d {
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};
    static constexpr LayerDescription description = LayerDescription("Upsample2d ", factor, " x ", factor);
    static constexpr LayerDescription wrong_size = impl::size_error({{"factor", factor}});

    static constexpr UpsamplingShape shape(const Shape& input) {
        return {input.height(), input.width(), input.channels(), factor};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        return Shape{saturating_product(input.height(), factor), saturating_product(input.width(), factor),
                     input.channels()};
    }

    static constexpr GraphOperators onnx(const Shape&) {
        const double scale = static_cast<double>(factor);
        return GraphOperator("Resize")
            .input()
            .nothing()
            .constant(GraphNumbers{GraphNumbers::Type::float32, {{1, 1, scale, scale}, 4}})
            .text("mode", "nearest")
            .text("coordinate_transformation_mode", "asymmetric")
            .text("nearest_mode", "floor");
    }

    template <class BuildContext>
    static FactoryOf<ops::Upsampling, BuildContext, UpsamplingShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
