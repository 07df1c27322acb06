// SPDX-License-Identifier: Apache-2.0
//
// ScaleChannels<initial = 1>: a trained factor per channel (ops/prelu.hpp), y = w[c] x. ConvNeXt and other networks of
// residual blocks end a block with one (Touvron et al. 2021: layer scale, initially 1e-6 in ConvNeXt).
//
//   input    any extents
//   output   the same
//   factor   [channels], of images [1, 1, channels], initially `initial`. Its full name is that of the layer, without a
//            part of its own, and of images it is [channels, 1, 1] in files: torchvision's `layer_scale`
#pragma once

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/prelu.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <Number initial = 1.0>
struct ScaleChannels {
    static constexpr LayerTraits traits{
        .backward_reads_output = false, .can_omit_parameter_gradients = true, .reads_input_for_parameters = true};
    static constexpr LayerDescription description =
        LayerDescription("ScaleChannels").add_if(initial != Number(1.0), ", initially ", static_cast<double>(initial));

    static constexpr ShapeResult output(const Shape& input) { return input; }

    static constexpr Parameters parameters(const Shape& input) {
        const std::int64_t channels = input.channels();
        return Parameter{.shape = input.rank == 3 ? Shape{1, 1, channels} : Shape{channels},
                         .initializer = constant(initial),
                         .layout = input.rank == 3 ? FileLayout::channels_first : FileLayout::input_features};
    }

    static constexpr GraphOperators onnx(const Shape&) { return GraphOperator("Mul").input().parameter(""); }

    template <class BuildContext>
    static FactoryOf<ops::PRelu, BuildContext, PReluShape> operation(const BuildContext& build) {
        return {PReluShape{build.input.channels(), true, true}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
