// SPDX-License-Identifier: Apache-2.0
//
// The common base of MaxPool2d and AvgPool2d, which differ in the kind of pooling only. `window` is a number or
// window(height, width); `stride` a number, stride(n) or stride(height, width). The options are same, valid or pad,
// ceil_mode, and for a mean count_padding or ignore_padding.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/pooling.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A pooling of images, or of sequences, whose axis is `width`.
[[nodiscard]] constexpr GraphOperators pooling_operators(PoolingShape s, bool is_sequence) {
    GraphOperators result;
    const auto windowed = [&](std::string_view type) {
        GraphOperator pooling(type);
        return is_sequence ? pooling.window(s.width) : pooling.window(s.height, s.width);
    };
    if (is_sequence) result.add(graph_sequence_transposed());
    if (s.kind == PoolingKind::max) {
        result.add(windowed("MaxPool"));
    } else {
        // ONNX counts all of the padding or none.
        const bool pads_before = counts_part_of_window(s);
        if (pads_before) {
            const std::int64_t rows = s.height.pad_begin, columns = s.width.pad_begin;
            const GraphOperator padding = GraphOperator("Pad").previous();
            result.add(is_sequence ? GraphOperator(padding).constant(0, 0, columns, 0, 0, columns)
                                   : GraphOperator(padding).constant(0, 0, rows, columns, 0, 0, rows, columns));
            s.height.pad_begin = s.width.pad_begin = 0;
            s.height.pad_end -= rows;
            s.width.pad_end -= columns;
        }
        result.add(windowed("AveragePool").integer("count_include_pad", s.counts_padding && !pads_before ? 1 : 0));
    }
    if (is_sequence) result.add(graph_sequence_transposed());
    return result;
}

template <PoolingKind pooling, auto window, auto stride, auto... options>
struct Pool2d {
    static constexpr bool is_mean = pooling == PoolingKind::average;
    static constexpr bool options_known =
        ((one_of<std::remove_cvref_t<decltype(options)>, Padding, PadOption, PadsOption, CeilModeOption> ||
          (is_mean && one_of<std::remove_cvref_t<decltype(options)>, CountPaddingOption>)) &&
         ...);
    static constexpr int paddings =
        (0 + ... + (one_of<std::remove_cvref_t<decltype(options)>, Padding, PadOption, PadsOption> ? 1 : 0));
    static constexpr bool has_pad = (one_of<std::remove_cvref_t<decltype(options)>, PadOption, PadsOption> || ...);
    static constexpr bool says_what_counts =
        (one_of<std::remove_cvref_t<decltype(options)>, CountPaddingOption> || ...);
    static constexpr Padding padding = option_or(Padding::same, options...);
    static constexpr bool rounds_up = option_or(CeilModeOption{}, options...).value;
    static constexpr bool counts_padding = is_mean && has_pad && option_or(CountPaddingOption{}, options...).value;
    static constexpr WindowSides windows = window_sides<WindowOption>(window),
                                 strides = window_sides<StrideOption, StridesOption, WindowOption>(stride);
    static constexpr WindowSides pads = has_pad ? sides_option<PadOption, PadsOption>(options...) : WindowSides{};

    static constexpr LayerKind kind = LayerKind::pooling;
    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_output = false, .can_apply_relu_mask = !is_mean};
    static constexpr LayerDescription description =
        LayerDescription(is_mean ? "AvgPool2d " : "MaxPool2d ", windows.height, " x ", windows.width)
            .add_if(strides != windows, ", stride ", strides.height)
            .add_if(strides != windows && !strides.square(), " x ", strides.width)
            .add_if(!has_pad && padding == Padding::valid, ", valid")
            .add_if(has_pad, ", pad ", pads.height)
            .add_if(!pads.square(), " x ", pads.width)
            .add_if(rounds_up, ", ceil mode")
            .add_if(is_mean && has_pad && !counts_padding, ", padding ignored");

    static constexpr std::string_view wrong_size = windows.least() < 1 || strides.least() < 1
                                                       ? "has a window or a stride of less than 1"
                                                   : pads.least() < 0 ? "has a negative padding"
                                                   : pads.height > windows.height / 2 || pads.width > windows.width / 2
                                                       ? "has a padding of more than half of its window"
                                                       : "";
    // The type's name in a message has no options: the description has all numbers.
    static constexpr LayerDescription size_error = LayerDescription(wrong_size, ": ", std::string_view(description)),
                                      too_large_error = LayerDescription("has a window larger than its input: ",
                                                                         std::string_view(description));

    static constexpr PoolingShape shape(const Shape& input) {
        const auto axis = [](std::int64_t size, std::int64_t along, std::int64_t step, std::int64_t pad_each) {
            return !has_pad && padding == Padding::same ? window_axis(size, along, step, Padding::same)
                                                        : window_axis(size, along, step, pad_each, rounds_up);
        };
        return {axis(input.height(), windows.height, strides.height, pads.height),
                axis(input.width(), windows.width, strides.width, pads.width), input.channels(), pooling,
                counts_padding};
    }

    static constexpr bool holds_window(const Shape& input) {
        const auto holds = [](std::int64_t size, std::int64_t along, std::int64_t step, std::int64_t pad_each) {
            return size >= along - 2 * pad_each - (rounds_up ? step - 1 : 0);
        };
        return holds(input.height(), windows.height, strides.height, pads.height) &&
               holds(input.width(), windows.width, strides.width, pads.width);
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!windows.known || !strides.known) {
            return ShapeError{
                "expects its window, n or window(height, width), and then its stride, n or stride(height, width)"};
        }
        if (!options_known) {
            return ShapeError{is_mean ? "accepts only same, valid or pad(n), ceil_mode, and count_padding or "
                                        "ignore_padding after its stride"
                                      : "accepts only same, valid or pad(n), and ceil_mode after its stride"};
        }
        if (paddings > 1) return ShapeError{"accepts only one of same, valid and pad(n)"};
        if (!given_once(options...)) return ShapeError{"is given an option twice"};
        if (rounds_up && !has_pad && padding == Padding::same)
            return ShapeError{"accepts ceil_mode only with valid or pad(n): same rounds up already"};
        if (says_what_counts && !has_pad)
            return ShapeError{"accepts count_padding and ignore_padding only with pad(n)"};
        if (!wrong_size.empty()) return ShapeError{size_error.c_str()};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (!holds_window(input)) return ShapeError{too_large_error.c_str()};
        if (!are_window_extents(
                {input.height(), input.width(), windows.height, windows.width, strides.height, strides.width}))
            return ShapeError{"has an input, a window or a stride of more than 2^29 rows or columns"};
        if (!is_mean && windows.height * windows.width > std::numeric_limits<std::int32_t>::max())
            return ShapeError{"has a window of more elements than int32 has numbers"};
        const PoolingShape s = shape(input);
        return Shape{s.height.output, s.width.output, input.channels()};
    }

    static constexpr GraphOperators onnx(const Shape& input) { return pooling_operators(shape(input), false); }

    template <class BuildContext>
    static FactoryOf<ops::Pooling, BuildContext, PoolingShape> operation(const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
