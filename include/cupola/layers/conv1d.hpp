// SPDX-License-Identifier: Apache-2.0
//
// Conv1d<channels, kernel, options...>: one-dimensional convolution with bias along the length of a sequence. It is the
// Conv2d of an image of one row, with the same operations.
//
//   input     length x in_channels
//   output    ceil(length / stride) x channels with `same` padding (the default, TensorFlow's);
//             (length - kernel) / stride + 1 positions with `valid`; pad(n) is `valid` after n zeros at each end. With
//             dilation(d) a kernel of n covers d (n - 1) + 1 positions
//   weight    [channels, kernel, in_channels / groups], He normal unless set with `weights(...)`; in files
//             [channels, in_channels / groups, kernel], as PyTorch's
//   bias      [channels], zero unless set with `biases(...)`; absent with `no_bias`
//
// groups(g) and depthwise are those of Conv2d.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/impl/one_row.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t channels, auto kernel, auto... options>
struct Conv1d {
    /// The convolution of an image of one row.
    using Row = Conv2d<channels, impl::window_of_row(kernel), impl::option_of_row(options)...>;

    static constexpr bool kernel_known = std::integral<std::remove_cvref_t<decltype(kernel)>>;
    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, StrideOption, PadOption, DilationOption, GroupsOption,
                      BiasOption, WeightsOption, BiasesOption, Padding> &&
         ...);

    static constexpr LayerKind kind = Row::kind;
    static constexpr LayerTraits traits = Row::traits;

    static constexpr LayerDescription description =
        LayerDescription("Conv1d ", channels, ", ", Row::kernels.width)
            .add_if(Row::strides.width != 1, ", stride ", Row::strides.width)
            .add_if(!Row::has_pad && Row::padding == Padding::valid, ", valid")
            .add_if(Row::has_pad, ", pad ", Row::pads.width)
            .add_if(Row::dilations.width != 1, ", dilation ", Row::dilations.width)
            .add_if(Row::groups.depthwise, ", depthwise")
            .add_if(Row::groups.value != 1, ", ", Row::groups.value, " groups")
            .add_if(!Row::has_bias, ", no bias");

    // The type's name in a message has no options.
    static constexpr LayerDescription dilation_error{"has a kernel larger than its input with the dilation ",
                                                     Row::dilations.width};
    /// The positions between the first element of the kernel and the last.
    static constexpr std::int64_t reach = Row::Given::reach().width;

    static constexpr ConvolutionShape shape(const Shape& input) { return Row::shape(impl::one_row(input)); }

    static constexpr ShapeResult output(const Shape& input) {
        if (!kernel_known) return ShapeError{"expects its channels and then its kernel, n"};
        if (!options_known) {
            return ShapeError{
                "accepts only the options stride(n), same, valid, pad(n), dilation(n), groups(n), depthwise, no_bias, "
                "weights(...) and biases(...)"};
        }
        if (input.rank != 2) return ShapeError{"expects length x channels"};
        if (Row::wrong_size.empty() &&
            !are_window_extents({input[0], Row::kernels.width, Row::strides.width, Row::pads.width, reach}))
            return ShapeError{"has an input, a kernel, a stride or a padding of more than 2^29 positions"};
        const ShapeResult row = Row::output(impl::one_row(input));
        if (!row.error.empty()) {
            const bool is_of_dilation = row.error == std::string_view(Row::dilation_error);
            return is_of_dilation ? ShapeError{dilation_error.c_str()} : ShapeError{row.error};
        }
        return Shape{row.shape.width(), channels};
    }

    static constexpr Parameters parameters(const Shape& input) {
        Parameters result = Row::parameters(impl::one_row(input));
        Shape& weight = result.list[0].shape;
        weight = {channels, weight[2], weight[3]};
        return result;
    }

    static constexpr std::int64_t multiply_adds(const Shape& input) { return Row::multiply_adds(impl::one_row(input)); }

    static constexpr GraphOperators onnx(const Shape& input) {
        const ConvolutionShape s = shape(input);
        GraphOperator convolution = GraphOperator("Conv").previous().parameter("weight").window(s.width);
        if (s.bias) convolution.parameter("bias");
        if (s.groups != 1) convolution.integer("group", s.groups);
        return {graph_sequence_transposed(), convolution, graph_sequence_transposed()};
    }

    template <class BuildContext>
    static FactoryOf<ops::Convolution, BuildContext, ConvolutionShape> operation(const BuildContext& build) {
        return Row::operation(impl::one_row_of(build));
    }
};

}}  // namespace cupola::CUPOLA_ABI
