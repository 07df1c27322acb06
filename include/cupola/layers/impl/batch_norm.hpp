// SPDX-License-Identifier: Apache-2.0
//
// The common base of BatchNorm1d and BatchNorm2d, which differ in the extents that they accept.
#pragma once

#include <cupola/core/finite.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/batch_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <Number epsilon, Number decay, bool of_images>
struct BatchNormOf {
    static constexpr LayerKind kind = LayerKind::batch_norm;
    static constexpr LayerTraits traits{.backward_reads_output = false,
                                        .absorbs_relu = true,
                                        .absorbs_relu6 = true,
                                        .can_omit_parameter_gradients = true,
                                        .input_gradient_in_place = true};
    static constexpr LayerDescription description =
        LayerDescription(of_images ? "BatchNorm2d" : "BatchNorm1d")
            .add_if(epsilon != Number(1e-5), ", epsilon ", static_cast<double>(epsilon))
            .add_if(decay != Number(0.9), " (decay ", static_cast<double>(decay), " in training)");
    static constexpr BatchNormStatistics statistics{.epsilon = epsilon, .decay = decay};

    static constexpr ShapeResult output(const Shape& input) {
        if (!epsilon.is_finite_float() || epsilon <= 0.0)
            return ShapeError{"has an epsilon that is not positive and finite"};
        if (!is_finite(decay) || decay < 0.0 || decay >= 1.0) return ShapeError{"has a decay outside [0, 1)"};
        if (of_images && input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (!of_images && input.rank != 1 && input.rank != 2)
            return ShapeError{"expects channels, or length x channels"};
        return input;
    }

    static constexpr Parameters parameters(const Shape& input) {
        return {per_channel("weight", 1, input), per_channel("bias", 0, input)};
    }
    static constexpr Parameters buffers(const Shape& input) {
        return {per_channel("running_mean", 0, input), per_channel("running_var", 1, input)};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const bool is_sequence = input.rank == 2;
        GraphOperator norm("BatchNormalization");
        is_sequence ? norm.previous() : norm.input();
        norm.parameter("weight").parameter("bias").parameter("running_mean").parameter("running_var");
        norm.number("epsilon", epsilon);
        if (!is_sequence) return norm;
        return {graph_sequence_transposed(), norm, graph_sequence_transposed()};
    }

    template <class BuildContext>
    static FactoryOf<ops::BatchNorm, BuildContext, BatchNormShape> operation(const BuildContext& build) {
        return {BatchNormShape{build.input.channels(), epsilon}};
    }

private:
    static constexpr Parameter per_channel(const char* name, double initial, const Shape& input) {
        return {.name = name,
                .shape = {input.channels()},
                .initializer = constant(initial),
                .layout = FileLayout::input_features};
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
