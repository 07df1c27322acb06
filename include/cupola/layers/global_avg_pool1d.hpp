// SPDX-License-Identifier: Apache-2.0
//
// GlobalAvgPool1d: the mean of each channel over the length of a sequence.
//
//   input   length x channels
//   output  channels
#pragma once

#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/impl/one_row.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct GlobalAvgPool1d {
    static constexpr LayerTraits traits = GlobalAvgPool2d::traits;

    static constexpr ShapeResult output(const Shape& input) {
        if (input.rank != 2) return ShapeError{"expects length x channels"};
        if (!are_window_extents({input[0]})) return ShapeError{"has an input of more than 2^29 positions"};
        return Shape{input.channels()};
    }

    static constexpr GraphOperators onnx(const Shape&) {
        return {graph_sequence_transposed(), GraphOperator("GlobalAveragePool"), GraphOperator("Flatten")};
    }

    template <class BuildContext>
    static FactoryOf<ops::Pooling, BuildContext, PoolingShape> operation(const BuildContext& build) {
        return GlobalAvgPool2d::operation(impl::one_row_of(build));
    }
};

}}  // namespace cupola::CUPOLA_ABI
