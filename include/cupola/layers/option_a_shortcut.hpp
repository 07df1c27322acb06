// SPDX-License-Identifier: Apache-2.0
//
// OptionAShortcut<channels, stride = 1>: option A (He et al. 2015) for the shortcut of a residual block that changes
// the extents: an average pool whose window equals its stride, then channels of zeros, the same number before and after
// those of the input. It has no parameters.
//
//   input   height x width x fewer channels
//   output  ceil(height / stride) x ceil(width / stride) x channels
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/ops/option_a_shortcut.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t channels, std::int64_t stride = 1>
struct OptionAShortcut {
    static constexpr bool is_shortcut = true;
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};
    static constexpr LayerDescription description =
        LayerDescription("OptionAShortcut ", channels).add_if(stride != 1, ", stride ", stride);
    static constexpr LayerDescription wrong_size =
        impl::size_error({{"number of channels", channels}, {"stride", stride}});

    static constexpr OptionAShortcutShape shape(const Shape& input) {
        return {window_axis(input.height(), stride, stride, Padding::same),
                window_axis(input.width(), stride, stride, Padding::same), input.channels(), channels,
                (channels - input.channels()) / 2};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (channels < input.channels())
            return ShapeError{"has fewer channels than its input, but it can only add channels"};
        if ((channels - input.channels()) % 2 != 0) {
            return ShapeError{
                "adds as many channels before those of the input as after them, but the number to add is odd"};
        }
        if (!are_window_extents({input.height(), input.width(), stride}))
            return ShapeError{"has an input or a stride of more than 2^29 rows or columns"};
        const OptionAShortcutShape s = shape(input);
        return Shape{s.height.output, s.width.output, channels};
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const OptionAShortcutShape s = shape(input);
        GraphOperators result;
        if (stride > 1) result.add(GraphOperator("AveragePool").window(s.height, s.width));
        if (s.before > 0) {
            result.add(GraphOperator("Pad").previous().constant(0, s.before, 0, 0, 0, s.before, 0, 0));
        }
        return result;
    }

    template <class BuildContext>
    static FactoryOf<ops::OptionAShortcut, BuildContext, OptionAShortcutShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
