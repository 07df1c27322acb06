// SPDX-License-Identifier: Apache-2.0
//
// Linear<features, options...>: y = x W^T + b (ops/linear.hpp).
//
//   input   in_features (insert `Flatten` before it where the input has height and width)
//   output  features
//   weight  [features, in_features], He normal unless set with `weights(...)`
//   bias    [features], zero unless set with `biases(...)`; absent with `no_bias`
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/linear.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t features, auto... options>
struct Linear {
    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, BiasOption, WeightsOption, BiasesOption> && ...);
    static constexpr bool has_bias = impl::option_or(BiasOption{}, options...).value;

    static constexpr LayerTraits traits{.backward_reads_output = false,
                                        .absorbs_relu = true,
                                        .can_omit_parameter_gradients = true,
                                        .reads_input_for_parameters = true};
    static constexpr LayerDescription description =
        LayerDescription("Linear ", features).add_if(!has_bias, ", no bias");
    static constexpr LayerDescription wrong_size = impl::size_error({{"number of features", features}});

    static constexpr ShapeResult output(const Shape& input) {
        if (!options_known) return ShapeError{"accepts only the options no_bias, weights(...) and biases(...)"};
        if (!impl::given_once(options...)) return ShapeError{"is given an option twice"};
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (input.rank != 1) return ShapeError{"expects one extent, the features: put Flatten before it"};
        return Shape{features};
    }

    static constexpr Parameters parameters(const Shape& input) {
        const Parameter weight{.name = "weight",
                               .shape = {features, input[0]},
                               .initializer = impl::option_or(WeightsOption{he_normal()}, options...).value,
                               .fan_in = input[0],
                               .fan_out = features,
                               .layout = FileLayout::input_features};
        if (!has_bias) return weight;
        return {weight, Parameter{.name = "bias",
                                  .shape = {features},
                                  .initializer = impl::option_or(BiasesOption{}, options...).value,
                                  .fan_in = weight.fan_in,
                                  .fan_out = weight.fan_out}};
    }

    static constexpr std::int64_t multiply_adds(const Shape& input) { return saturating_product(input[0], features); }

    static constexpr GraphOperators onnx(const Shape&) {
        GraphOperator result = GraphOperator("Gemm").input().parameter("weight").integer("transB", 1);
        if (has_bias) result.parameter("bias");
        return result;
    }

    template <class BuildContext>
    static FactoryOf<ops::Linear, BuildContext, LinearShape> operation(const BuildContext& build) {
        return {LinearShape{build.input[0], features, has_bias}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
