// SPDX-License-Identifier: Apache-2.0
//
// GroupNorm<groups, epsilon = 1e-5>: normalises each group of neighbouring channels over all positions of a sample
// (ops/group_norm.hpp has the formula).
//
//   input    any extents; channels are the last
//   output   the same
//   weight   [channels], initially one
//   bias     [channels], initially zero
//
// The features of an image have another order behind a Flatten than in PyTorch, so that neighbours there are not
// neighbours here: several groups of them are an error. GroupNorm before the Flatten normalises groups of channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/group_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The groups as the rows of [N, groups, values]: opset 17 has no operator for them.
[[nodiscard]] constexpr GraphOperators group_norm_operators(const Shape& input, std::int64_t groups, double epsilon,
                                                            bool affine) {
    const std::int64_t channels = input.channels();
    const bool channels_last = input.rank == 2 || input.rank == 4;
    GraphOperators all;
    if (input.rank == 4) all.add(GraphOperator("Reshape").previous().constant(0, -1, channels));
    if (channels_last) all.add(graph_sequence_transposed());
    all.add(GraphOperator("Reshape").previous().constant(0, groups, -1));
    all.add(GraphOperator("ReduceMean").integers("axes", 2).integer("keepdims", 1));
    all.add(GraphOperator("Sub").result(all.size() - 2).previous());
    const std::size_t centred = all.size() - 1;
    all.add(GraphOperator("Mul").result(centred).result(centred));
    all.add(GraphOperator("ReduceMean").integers("axes", 2).integer("keepdims", 1));
    all.add(GraphOperator("Add").previous().constant(epsilon));
    all.add(GraphOperator("Sqrt"));
    all.add(GraphOperator("Div").result(centred).previous());
    const GraphOperator back = GraphOperator("Reshape").previous();
    all.add(input.rank == 1   ? GraphOperator(back).constant(0, channels)
            : input.rank == 3 ? GraphOperator(back).constant(0, channels, input.height(), input.width())
                              : GraphOperator(back).constant(0, channels, input.size() / channels));
    if (channels_last) all.add(graph_sequence_transposed());
    if (input.rank == 4) all.add(GraphOperator(back).constant(0, input[0], input[1], input[2], channels));
    if (affine) {
        for (const bool factor : {true, false}) {
            const std::string_view parameter = factor ? "weight" : "bias";
            const GraphOperator join(factor ? "Mul" : "Add");
            const std::size_t value = all.size() - 1;
            if (input.rank == 3) {
                all.add(GraphOperator("Unsqueeze").parameter(parameter).constant(1, 2));
                all.add(GraphOperator(join).result(value).previous());
            } else {
                all.add(GraphOperator(join).previous().parameter(parameter));
            }
        }
    }
    return all;
}

}  // namespace impl

template <std::int64_t groups, Number epsilon = 1e-5>
struct GroupNorm {
    static constexpr LayerTraits traits{.backward_reads_output = false, .can_omit_parameter_gradients = true};
    static constexpr LayerDescription description =
        LayerDescription("GroupNorm ", groups)
            .add_if(epsilon != Number(1e-5), ", epsilon ", static_cast<double>(epsilon));
    static constexpr LayerDescription wrong_size = impl::size_error({{"number of groups", groups}});

    static constexpr ShapeResult output(const Shape& input) {
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (!epsilon.is_finite_float() || epsilon <= 0.0)
            return ShapeError{"has an epsilon that is not positive and finite"};
        constexpr std::int64_t divisor = groups < 1 ? 1 : groups;  // nvcc compiles a division by 0 that is not reached
        if (input.channels() % divisor != 0) return ShapeError{"expects a multiple of its groups as channels"};
        constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
        if (input.channels() > most || input.size() / input.channels() > most)
            return ShapeError{"expects fewer than 2^31 channels and positions"};
        return input;
    }

    /// The error in the layers before it: a Flatten, as long as every feature has kept its place since.
    template <class Layers>
    static constexpr std::string_view conflict_with(const Layers& layers, std::size_t value) {
        while (groups > 1 && value > 0) {
            const auto& layer = layers[value - 1];
            const Shape& image = layer.input;
            if (layer.traits.flattens && image.rank == 3 && image.channels() > 1 && image.size() > image.channels())
                return "would have groups of other features than PyTorch's, whose order behind a Flatten is channel, "
                       "height, width: put it before the Flatten, or flatten by FlattenChannelsLast";
            if (layer.output != layer.input) break;
            for (std::size_t p = 0; p < layer.parameters.count; ++p) {
                if (layer.parameters.list[p].shape.rank > 1) return {};
            }
            value = layer.reads;
        }
        return {};
    }

    static constexpr Parameters parameters(const Shape& input) {
        return {per_channel("weight", 1, input), per_channel("bias", 0, input)};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        return impl::group_norm_operators(input, groups, epsilon, true);
    }

    template <class BuildContext>
    static FactoryOf<ops::GroupNorm, BuildContext, GroupNormShape> operation(const BuildContext& build) {
        const Shape& input = build.input;
        return {GroupNormShape{.positions = input.size() / input.channels(),
                               .channels = input.channels(),
                               .groups = groups,
                               .epsilon = epsilon}};
    }

private:
    /// One group is of all features, whatever their order.
    static constexpr Parameter per_channel(const char* name, double initial, const Shape& input) {
        return {.name = name,
                .shape = {input.channels()},
                .initializer = constant(initial),
                .layout = groups == 1 ? FileLayout::input_features : FileLayout::as_here};
    }
};

}}  // namespace cupola::CUPOLA_ABI
