// SPDX-License-Identifier: Apache-2.0
//
// GlobalAvgPool2d: the mean of each channel over height and width.
//
//   input   height x width x channels
//   output  channels
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct GlobalAvgPool2d {
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};

    static constexpr ShapeResult output(const Shape& input) {
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (!are_window_extents({input.height(), input.width()}))
            return ShapeError{"has an input of more than 2^29 rows or columns"};
        return Shape{input.channels()};
    }

    static constexpr GraphOperators onnx(const Shape&) {
        return {GraphOperator("GlobalAveragePool"), GraphOperator("Flatten")};
    }

    template <class BuildContext>
    static FactoryOf<ops::Pooling, BuildContext, PoolingShape> operation(const BuildContext& build) {
        const Shape& input = build.input;
        return {PoolingShape{window_axis(input.height(), input.height(), 1, Padding::valid),
                             window_axis(input.width(), input.width(), 1, Padding::valid), input.channels(),
                             PoolingKind::average}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
