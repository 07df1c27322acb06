// SPDX-License-Identifier: Apache-2.0
//
// The common base of MaxPool1d and AvgPool1d: the pooling of an image of one row.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <cupola/layers/impl/one_row.hpp>
#include <cupola/layers/impl/pool2d.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <PoolingKind pooling, auto window, auto stride, auto... options>
struct Pool1d {
    using Row = Pool2d<pooling, window_of_row(window), stride_of_row(stride), option_of_row(options)...>;
    using Stride = std::remove_cvref_t<decltype(stride)>;

    static constexpr bool sizes_known = std::integral<std::remove_cvref_t<decltype(window)>> &&
                                        (std::integral<Stride> || std::same_as<Stride, StrideOption>);
    static constexpr bool options_known =
        ((one_of<std::remove_cvref_t<decltype(options)>, Padding, PadOption, CeilModeOption> ||
          (Row::is_mean && one_of<std::remove_cvref_t<decltype(options)>, CountPaddingOption>)) &&
         ...);

    static constexpr LayerKind kind = Row::kind;
    static constexpr LayerTraits traits = Row::traits;
    static constexpr LayerDescription description =
        LayerDescription(Row::is_mean ? "AvgPool1d " : "MaxPool1d ", Row::windows.width)
            .add_if(Row::strides.width != Row::windows.width, ", stride ", Row::strides.width)
            .add_if(!Row::has_pad && Row::padding == Padding::valid, ", valid")
            .add_if(Row::has_pad, ", pad ", Row::pads.width)
            .add_if(Row::rounds_up, ", ceil mode")
            .add_if(Row::is_mean && Row::has_pad && !Row::counts_padding, ", padding ignored");

    // The type's name in a message has no options: the description has all numbers.
    static constexpr LayerDescription size_error =
                                          LayerDescription(Row::wrong_size, ": ", std::string_view(description)),
                                      too_large_error = LayerDescription("has a window larger than its input: ",
                                                                         std::string_view(description));

    static constexpr PoolingShape shape(const Shape& input) { return Row::shape(one_row(input)); }

    static constexpr ShapeResult output(const Shape& input) {
        if (!sizes_known) return ShapeError{"expects its window, n, and then its stride, n"};
        if (!options_known) {
            return ShapeError{Row::is_mean ? "accepts only same, valid or pad(n), ceil_mode, and count_padding or "
                                             "ignore_padding after its stride"
                                           : "accepts only same, valid or pad(n), and ceil_mode after its stride"};
        }
        if (!Row::wrong_size.empty()) return ShapeError{size_error.c_str()};
        if (input.rank != 2) return ShapeError{"expects length x channels"};
        if (!Row::holds_window(one_row(input))) return ShapeError{too_large_error.c_str()};
        if (!are_window_extents({input[0], Row::windows.width, Row::strides.width}))
            return ShapeError{"has an input, a window or a stride of more than 2^29 positions"};
        const ShapeResult row = Row::output(one_row(input));
        if (!row.error.empty()) return row;
        return Shape{row.shape.width(), input.channels()};
    }

    static constexpr GraphOperators onnx(const Shape& input) { return pooling_operators(shape(input), true); }

    template <class BuildContext>
    static FactoryOf<ops::Pooling, BuildContext, PoolingShape> operation(const BuildContext& build) {
        return Row::operation(one_row_of(build));
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
