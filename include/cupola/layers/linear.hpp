// SPDX-License-Identifier: Apache-2.0
//
// Linear<features, options...>: y = x W^T + b (ops/linear.hpp); with `per_position` at each position of the input, over
// its channels, which is a convolution of the kernel 1 x 1 (ops/convolution.hpp).
//
//   input   in_features (insert `Flatten` before it where the input has height and width); with `per_position` any
//           extents, of which the last are the in_features
//   output  features; with `per_position` the other extents of the input, then features
//   weight  [features, in_features], He normal unless set with `weights(...)`
//   bias    [features], zero unless set with `biases(...)`; absent with `no_bias`
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/convolution.hpp>
#include <cupola/ops/linear.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t features, auto... options>
struct Linear {
    static constexpr bool options_known = (impl::one_of<std::remove_cvref_t<decltype(options)>, PerPositionOption,
                                                        BiasOption, WeightsOption, BiasesOption> &&
                                           ...);
    static constexpr bool is_per_position = impl::option_or(PerPositionOption{}, options...).value;
    static constexpr bool has_bias = impl::option_or(BiasOption{}, options...).value;

    /// What is done to convolutions is done to it per position: it may contain a batch normalisation.
    static constexpr LayerKind kind = is_per_position ? LayerKind::convolution : LayerKind::plain;
    static constexpr LayerTraits traits{.backward_reads_output = false,
                                        .absorbs_relu = true,
                                        .absorbs_relu6 = is_per_position,
                                        .can_omit_parameter_gradients = true,
                                        .reads_input_for_parameters = true};
    static constexpr LayerDescription description =
        LayerDescription("Linear ", features).add_if(is_per_position, ", per position").add_if(!has_bias, ", no bias");
    static constexpr LayerDescription wrong_size = impl::size_error({{"number of features", features}});

    static constexpr ShapeResult output(const Shape& input) {
        if (!options_known)
            return ShapeError{"accepts only the options per_position, no_bias, weights(...) and biases(...)"};
        if (!impl::given_once(options...)) return ShapeError{"is given an option twice"};
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (is_per_position) {
            if (!are_window_extents({rows(input), columns(input)}))
                return ShapeError{"has an input of more than 2^29 rows or columns"};
            Shape result = input;
            result.extents[input.rank - 1] = features;
            return result;
        }
        if (input.rank != 1)
            return ShapeError{"expects one extent, the features: put Flatten before it, or apply it per_position"};
        return Shape{features};
    }

    static constexpr Parameters parameters(const Shape& input) {
        const Parameter weight{.name = "weight",
                               .shape = {features, input.channels()},
                               .initializer = impl::option_or(WeightsOption{he_normal()}, options...).value,
                               .fan_in = input.channels(),
                               .fan_out = features,
                               .layout = FileLayout::input_features};
        if (!has_bias) return weight;
        return {weight, Parameter{.name = "bias",
                                  .shape = {features},
                                  .initializer = impl::option_or(BiasesOption{}, options...).value,
                                  .fan_in = weight.fan_in,
                                  .fan_out = weight.fan_out}};
    }

    static constexpr std::int64_t multiply_adds(const Shape& input) {
        return saturating_product(input.size(), features);
    }

    /// Of more than one position a product with the transposed weight, and of an image a Conv.
    static constexpr GraphOperators onnx(const Shape& input) {
        if (input.rank == 3) {
            GraphOperator result = GraphOperator("Conv").input().previous();
            if (has_bias) result.parameter("bias");
            return {GraphOperator("Unsqueeze").parameter("weight").constant(2, 3), result};
        }
        if (input.rank != 1) {
            GraphOperators result{GraphOperator("Transpose").parameter("weight").integers("perm", 1, 0),
                                  GraphOperator("MatMul").input().previous()};
            if (has_bias) result.add(GraphOperator("Add").previous().parameter("bias"));
            return result;
        }
        GraphOperator result = GraphOperator("Gemm").input().parameter("weight").integer("transB", 1);
        if (has_bias) result.parameter("bias");
        return result;
    }

    template <class BuildContext>
        requires(!is_per_position)
    static FactoryOf<ops::Linear, BuildContext, LinearShape> operation(const BuildContext& build) {
        return {LinearShape{build.input[0], features, has_bias}};
    }
    template <class BuildContext>
        requires(is_per_position)
    static FactoryOf<ops::Convolution, BuildContext, ConvolutionShape> operation(const BuildContext& build) {
        const Shape& input = build.input;
        return {ConvolutionShape{.height = window_axis(rows(input), 1, 1, Padding::valid),
                                 .width = window_axis(columns(input), 1, 1, Padding::valid),
                                 .in_channels = input.channels(),
                                 .out_channels = features,
                                 .bias = has_bias || build.folded_norm}};
    }

private:
    /// The positions as an image.
    static constexpr std::int64_t columns(const Shape& input) { return input.rank > 1 ? input[input.rank - 2] : 1; }
    static constexpr std::int64_t rows(const Shape& input) {
        std::int64_t result = 1;
        for (std::size_t i = 0; i + 2 < input.rank; ++i) result = saturating_product(result, input[i]);
        return result;
    }
};

}}  // namespace cupola::CUPOLA_ABI
