// SPDX-License-Identifier: Apache-2.0
//
// RMSNorm<epsilon = 2^-23>: divides the channels of each position, the last extent, by the root of the mean of their
// squares: y = x / sqrt(mean of x^2 + epsilon) * weight[c] (ops/group_norm.hpp). The default is PyTorch's for float.
//
//   input    any extents
//   output   the same
//   weight   [channels], initially one
#pragma once

#include <cstdint>
#include <limits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/group_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number epsilon = 0x1p-23>
struct RMSNorm {
    static constexpr LayerTraits traits{.backward_reads_output = false, .can_omit_parameter_gradients = true};
    static constexpr LayerDescription description =
        LayerDescription("RMSNorm").add_if(epsilon != Number(0x1p-23), ", epsilon ", static_cast<double>(epsilon));

    static constexpr ShapeResult output(const Shape& input) {
        if (!epsilon.is_finite_float() || epsilon <= 0.0)
            return ShapeError{"has an epsilon that is not positive and finite"};
        if (input.channels() > std::numeric_limits<std::int32_t>::max())
            return ShapeError{"expects fewer than 2^31 channels"};
        return input;
    }

    static constexpr Parameters parameters(const Shape& input) {
        return Parameter{.name = "weight",
                         .shape = {input.channels()},
                         .initializer = constant(1),
                         .layout = FileLayout::input_features};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const bool image = input.rank == 3;
        GraphOperators operators(
            GraphOperator("Mul").input().input(),
            GraphOperator("ReduceMean").integers("axes", graph_channel_axis(input)).integer("keepdims", 1),
            GraphOperator("Add").previous().constant(static_cast<double>(epsilon)), GraphOperator("Sqrt"),
            GraphOperator("Div").input().previous());
        if (!image) {
            operators.add(GraphOperator("Mul").previous().parameter("weight"));
        } else {
            operators.add(GraphOperator("Unsqueeze").parameter("weight").constant(1, 2));
            operators.add(GraphOperator("Mul").result(4).previous());
        }
        return operators;
    }

    template <class BuildContext>
    static FactoryOf<ops::GroupNorm, BuildContext, GroupNormShape> operation(const BuildContext& build) {
        return {GroupNormShape{.channels = build.input.channels(), .epsilon = epsilon, .centred = false}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
