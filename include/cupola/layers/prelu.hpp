// SPDX-License-Identifier: Apache-2.0
//
// PReLU<options...>: ReLU with a trained slope below 0 (ops/prelu.hpp), y = x where x is positive, else weight x.
//
//   input   any extents
//   output  the same
//   weight  [1], or [channels] with `weight_per_channel`; 0.25 unless set with `weights(...)`
#pragma once

#include <cstdint>
#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/prelu.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <auto... options>
struct PReLU {
    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, WeightPerChannelOption, WeightsOption> && ...);
    static constexpr bool per_channel = impl::option_or(WeightPerChannelOption{}, options...).value;

    static constexpr LayerTraits traits{.backward_reads_output = false, .can_omit_parameter_gradients = true};
    static constexpr LayerDescription description =
        LayerDescription("PReLU").add_if(per_channel, ", one weight per channel");

    static constexpr ShapeResult output(const Shape& input) {
        if (!options_known) return ShapeError{"accepts only the options weight_per_channel and weights(...)"};
        if (!impl::given_once(options...)) return ShapeError{"is given an option twice"};
        return input;
    }

    static constexpr Parameters parameters(const Shape& input) {
        return Parameter{.name = "weight",
                         .shape = {per_channel ? input.channels() : 1},
                         .initializer = impl::option_or(WeightsOption{constant(0.25)}, options...).value,
                         .layout = per_channel ? FileLayout::input_features : FileLayout::as_here};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        if (!per_channel || input.rank != 3) return GraphOperator("PRelu").input().parameter("weight");
        return {GraphOperator("Unsqueeze").parameter("weight").constant(1, 2),
                GraphOperator("PRelu").input().previous()};
    }

    template <class BuildContext>
    static FactoryOf<ops::PRelu, BuildContext, PReluShape> operation(const BuildContext& build) {
        return {PReluShape{build.input.channels(), per_channel}};
    }
};

}}  // namespace cupola::CUPOLA_ABI
