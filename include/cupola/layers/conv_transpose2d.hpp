// SPDX-License-Identifier: Apache-2.0
//
// ConvTranspose2d<channels, kernel, options...>: transposed two-dimensional convolution with bias
// (ops/transposed_convolution.hpp has the formula), with PyTorch's extents: a stride enlarges the image.
//
//   kernel    n, or kernel(height, width) where they differ; likewise stride, pad, dilation and output_padding among
//             the options
//
//   input     height x width x in_channels
//   output    (height - 1) stride - 2 pad + dilation (kernel - 1) + output_padding + 1 rows, likewise columns, of
//             `channels`. pad(n) leaves out n rows and columns on each side. output_padding(n), below the stride, adds
//             n at the end: a convolution with a stride has the same output for that many extents of its input, and
//             this option chooses between them
//   weight    [in_channels, kernel height, kernel width, channels / groups], He normal unless set with `weights(...)`.
//             The fans are PyTorch's: channels / groups times the elements of the kernel for fan-in, and the channels
//             of the input times them for fan-out, whatever the stride
//   bias      [channels], zero unless set with `biases(...)`; absent with `no_bias`. In bfloat16 and half the output is
//             rounded twice where there is a bias
//
// groups(g) divides the input's channels and the layer's into g ranges of the same size, each convolved by itself.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/impl/convolution_options.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/transposed_convolution.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t channels, auto kernel, auto... options>
struct ConvTranspose2d : impl::ConvolutionOptions<channels, kernel, options...> {
    using Given = impl::ConvolutionOptions<channels, kernel, options...>;
    using Given::dilations, Given::groups, Given::has_bias, Given::kernels, Given::pads, Given::strides,
        Given::wrong_size;

    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, StrideOption, StridesOption, PadOption, PadsOption,
                      OutputPaddingOption, OutputPaddingsOption, DilationOption, DilationsOption, GroupsOption,
                      BiasOption, WeightsOption, BiasesOption> &&
         ...);
    static constexpr impl::WindowSides output_paddings =
        impl::sides_option<OutputPaddingOption, OutputPaddingsOption>(options...);

    static constexpr LayerTraits traits{
        .backward_reads_output = false, .can_omit_parameter_gradients = true, .reads_input_for_parameters = true};

    static constexpr LayerDescription description =
        LayerDescription("ConvTranspose2d ", channels, ", ", kernels.height, " x ", kernels.width)
            .add_if(strides != impl::WindowSides{1, 1}, ", stride ", strides.height)
            .add_if(!strides.square(), " x ", strides.width)
            .add_if(pads != impl::WindowSides{}, ", pad ", pads.height)
            .add_if(!pads.square(), " x ", pads.width)
            .add_if(output_paddings != impl::WindowSides{}, ", output padding ", output_paddings.height)
            .add_if(!output_paddings.square(), " x ", output_paddings.width)
            .add_if(dilations != impl::WindowSides{1, 1}, ", dilation ", dilations.height)
            .add_if(!dilations.square(), " x ", dilations.width)
            .add_if(groups.value != 1, ", ", groups.value, " groups")
            .add_if(!has_bias, ", no bias");

    // The type's name in a message has no options.
    static constexpr LayerDescription output_padding_error{"has an output_padding of ",
                                                           output_paddings.height,
                                                           " x ",
                                                           output_paddings.width,
                                                           ", which must be at least 0 and below the stride, ",
                                                           strides.height,
                                                           " x ",
                                                           strides.width};

    static constexpr TransposedConvolutionShape shape(const Shape& input) {
        const auto axis = [](std::int64_t size, std::int64_t along, std::int64_t step, std::int64_t pad_each,
                             std::int64_t apart, std::int64_t added) {
            const std::int64_t output = (size - 1) * step + window_reach(along, apart) + added - 2 * pad_each;
            return window_axis(output, along, step, pad_each, false, apart);
        };
        return {{axis(input.height(), kernels.height, strides.height, pads.height, dilations.height,
                      output_paddings.height),
                 axis(input.width(), kernels.width, strides.width, pads.width, dilations.width, output_paddings.width),
                 channels, input.channels(), false, groups.value},
                has_bias};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!kernels.known) return ShapeError{"expects its channels and then its kernel, n or kernel(height, width)"};
        if (!options_known) {
            return ShapeError{
                "accepts only the options stride(n), pad(n), output_padding(n), dilation(n), groups(n), no_bias, "
                "weights(...) and biases(...)"};
        }
        if (groups.depthwise)
            return ShapeError{"does not accept depthwise: state the channels of its input with groups(n)"};
        if (!impl::given_once(options...) || !strides.known || !pads.known || !dilations.known ||
            !output_paddings.known)
            return ShapeError{"is given an option twice"};
        if (pads.least() < 0) return ShapeError{"has a negative padding"};
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        if (output_paddings.least() < 0 || output_paddings.height >= strides.height ||
            output_paddings.width >= strides.width)
            return ShapeError{output_padding_error.c_str()};
        constexpr impl::WindowSides reach = Given::reach();
        if (pads.height > reach.height || pads.width > reach.width)
            return ShapeError{"has a padding as large as its kernel: a part of the input would not be read"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        constexpr const char* too_large =
            "has an output, a kernel, a stride or a padding of more than 2^29 rows or columns";
        if (!are_window_extents({saturating_product(input.height(), strides.height),
                                 saturating_product(input.width(), strides.width), pads.height, pads.width,
                                 reach.height, reach.width}))
            return ShapeError{too_large};
        if (const std::string_view error = Given::groups_error(input.channels()); !error.empty())
            return ShapeError{error};
        // With the extents above, those of the output fit in 64 bits.
        const ConvolutionShape s = shape(input).convolution;
        if (!are_window_extents({s.height.input, s.width.input})) return ShapeError{too_large};
        if (s.height.input < 1 || s.width.input < 1)
            return ShapeError{"has a padding that leaves nothing of its output"};
        return Shape{s.height.input, s.width.input, channels};
    }

    static constexpr Parameters parameters(const Shape& input) {
        const std::int64_t out = channels / groups.value;
        return Given::weight_and_bias({input.channels(), kernels.height, kernels.width, out}, out, input.channels());
    }

    /// Counts only the products whose place lies inside the output.
    static constexpr std::int64_t multiply_adds(const Shape& input) {
        const ConvolutionShape s = shape(input).convolution;
        return saturating_product(window_offsets_inside(s.height), window_offsets_inside(s.width), s.group_channels(),
                                  s.out_channels);
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const ConvolutionShape s = shape(input).convolution;
        GraphOperator result = GraphOperator("ConvTranspose").input().parameter("weight").window(s.height, s.width);
        if (has_bias) result.parameter("bias");
        if (output_paddings != impl::WindowSides{})
            result.integers("output_padding", output_paddings.height, output_paddings.width);
        if (groups.value != 1) result.integer("group", groups.value);
        return result;
    }

    template <class BuildContext>
    static FactoryOf<ops::TransposedConvolution, BuildContext, TransposedConvolutionShape> operation(
        const BuildContext& build) {
        return {shape(build.input)};
    }
};

}}  // namespace cupola::CUPOLA_ABI
