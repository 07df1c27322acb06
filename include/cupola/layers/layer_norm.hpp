// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm<epsilon = 1e-5>: normalises the channels of each position, the last extent (ops/group_norm.hpp has the
// formula): PyTorch's nn.LayerNorm(channels) where channels are last.
//
//   input    any extents
//   output   the same
//   weight   [channels], initially one
//   bias     [channels], initially zero
#pragma once

#include <cstdint>
#include <limits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/group_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number epsilon = 1e-5>
struct LayerNorm {
    static constexpr LayerTraits traits{.backward_reads_output = false, .can_omit_parameter_gradients = true};
    static constexpr LayerDescription description =
        LayerDescription("LayerNorm").add_if(epsilon != Number(1e-5), ", epsilon ", static_cast<double>(epsilon));

    static constexpr ShapeResult output(const Shape& input) {
        if (!epsilon.is_finite_float() || epsilon <= 0.0)
            return ShapeError{"has an epsilon that is not positive and finite"};
        if (input.channels() > std::numeric_limits<std::int32_t>::max())
            return ShapeError{"expects fewer than 2^31 channels"};
        return input;
    }

    static constexpr Parameters parameters(const Shape& input) {
        return {Parameter{.name = "weight",
                          .shape = {input.channels()},
                          .initializer = constant(1),
                          .layout = FileLayout::input_features},
                Parameter{.name = "bias", .shape = {input.channels()}, .layout = FileLayout::input_features}};
    }

    /// ONNX normalises the last extents, which an image's channels are not.
    static constexpr GraphOperators onnx(const Shape& input) {
        const GraphOperator norm = GraphOperator("LayerNormalization")
                                       .previous()
                                       .parameter("weight")
                                       .parameter("bias")
                                       .integer("axis", -1)
                                       .number("epsilon", epsilon);
        if (input.rank != 3) return norm;
        return {graph_channels_last(), norm, graph_channels_first()};
    }

    template <class BuildContext>
    static FactoryOf<ops::GroupNorm, BuildContext, GroupNormShape> operation(const BuildContext& build) {
        return {GroupNormShape{.channels = build.input.channels(), .epsilon = epsilon}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
