// SPDX-License-Identifier: Apache-2.0
//
// Conv2d<channels, kernel, options...>: two-dimensional convolution with bias (ops/convolution.hpp has the formula).
//
//   kernel    n, or kernel(height, width) where they differ; likewise stride, pad and dilation among the options
//
//   input     height x width x in_channels
//   output    ceil(height / stride) x ceil(width / stride) x channels with `same` padding (the default, TensorFlow's);
//             ((height - kernel) / stride + 1) and so on with `valid`; pad(n) is `valid` after n zeros on each side.
//             With dilation(d) a kernel of n covers d (n - 1) + 1 rows
//   weight    [channels, kernel height, kernel width, in_channels / groups], He normal unless set with `weights(...)`
//   bias      [channels], zero unless set with `biases(...)`; absent with `no_bias`
//
// groups(g) divides the input's channels and the layer's into g ranges of the same size, each convolved by itself;
// `depthwise` is groups(in_channels).
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/impl/convolution_options.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/convolution.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t channels, auto kernel, auto... options>
struct Conv2d : impl::ConvolutionOptions<channels, kernel, options...> {
    using Given = impl::ConvolutionOptions<channels, kernel, options...>;
    using Given::dilations, Given::groups, Given::has_bias, Given::has_pad, Given::kernels, Given::pads, Given::strides,
        Given::wrong_size;

    static constexpr bool options_known =
        (impl::one_of<std::remove_cvref_t<decltype(options)>, StrideOption, StridesOption, PadOption, PadsOption,
                      DilationOption, DilationsOption, GroupsOption, BiasOption, WeightsOption, BiasesOption,
                      Padding> &&
         ...);
    static constexpr int paddings =
        (0 + ... + (impl::one_of<std::remove_cvref_t<decltype(options)>, PadOption, PadsOption, Padding> ? 1 : 0));
    /// The distance of the rows.
    static constexpr std::int64_t stride = strides.height;
    static constexpr Padding padding = impl::option_or(Padding::same, options...);

    static constexpr LayerKind kind = LayerKind::convolution;
    static constexpr LayerTraits traits{.backward_reads_output = false,
                                        .absorbs_relu = true,
                                        .absorbs_relu6 = true,
                                        .can_omit_parameter_gradients = true,
                                        .reads_input_for_parameters = true};

    static constexpr LayerDescription description =
        LayerDescription("Conv2d ", channels, ", ", kernels.height, " x ", kernels.width)
            .add_if(strides != impl::WindowSides{1, 1}, ", stride ", strides.height)
            .add_if(!strides.square(), " x ", strides.width)
            .add_if(!has_pad && padding == Padding::valid, ", valid")
            .add_if(has_pad, ", pad ", pads.height)
            .add_if(!pads.square(), " x ", pads.width)
            .add_if(dilations != impl::WindowSides{1, 1}, ", dilation ", dilations.height)
            .add_if(!dilations.square(), " x ", dilations.width)
            .add_if(groups.depthwise, ", depthwise")
            .add_if(groups.value != 1, ", ", groups.value, " groups")
            .add_if(!has_bias, ", no bias");

    // The type's name in a message has no options.
    static constexpr LayerDescription dilation_error{"has a kernel larger than its input with the dilation ",
                                                     dilations.height, " x ", dilations.width};

    static constexpr std::int64_t groups_for(const Shape& input) {
        return groups.depthwise ? input.channels() : groups.value;
    }

    static constexpr ConvolutionShape shape(const Shape& input) {
        const auto axis = [](std::int64_t size, std::int64_t along, std::int64_t step, std::int64_t pad_each,
                             std::int64_t apart) {
            return has_pad ? window_axis(size, along, step, pad_each, false, apart)
                           : window_axis(size, along, step, padding, apart);
        };
        return {axis(input.height(), kernels.height, strides.height, pads.height, dilations.height),
                axis(input.width(), kernels.width, strides.width, pads.width, dilations.width),
                input.channels(),
                channels,
                has_bias,
                groups_for(input)};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!kernels.known) return ShapeError{"expects its channels and then its kernel, n or kernel(height, width)"};
        if (!options_known) {
            return ShapeError{
                "accepts only the options stride(n), same, valid, pad(n), dilation(n), groups(n), depthwise, no_bias, "
                "weights(...) and biases(...)"};
        }
        if (paddings > 1) return ShapeError{"accepts only one of same, valid and pad(n)"};
        if (!impl::given_once(options...) || !strides.known || !dilations.known)
            return ShapeError{"is given an option twice"};
        if (pads.least() < 0) return ShapeError{"has a negative padding"};
        if (!wrong_size.empty()) return ShapeError{wrong_size.c_str()};
        constexpr impl::WindowSides reach = Given::reach();
        if (pads.height > reach.height || pads.width > reach.width)
            return ShapeError{"has a padding as large as its kernel: some outputs would not depend on the input"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (!are_window_extents({input.height(), input.width(), kernels.height, kernels.width, strides.height,
                                 strides.width, pads.height, pads.width, reach.height, reach.width}))
            return ShapeError{"has an input, a kernel, a stride or a padding of more than 2^29 rows or columns"};
        if constexpr (groups.depthwise) {
            if (input.channels() < 1 || channels % input.channels() != 0)
                return ShapeError{"is depthwise, and its channels are no multiple of those of its input"};
        } else if (const std::string_view error = Given::groups_error(input.channels()); !error.empty()) {
            return ShapeError{error};
        }
        const ConvolutionShape s = shape(input);
        if (s.height.output < 1 || s.width.output < 1) {
            if constexpr (dilations == impl::WindowSides{1, 1}) {
                return ShapeError{"has a kernel larger than its input"};
            } else {
                return ShapeError{dilation_error.c_str()};
            }
        }
        return Shape{s.height.output, s.width.output, channels};
    }

    static constexpr Parameters parameters(const Shape& input) {
        const std::int64_t count = groups_for(input), in = input.channels() / count;
        return Given::weight_and_bias({channels, kernels.height, kernels.width, in}, in, channels);
    }

    /// Counts only the window offsets inside the image, which is the work that an implementation has to do.
    static constexpr std::int64_t multiply_adds(const Shape& input) {
        const ConvolutionShape s = shape(input);
        return saturating_product(window_offsets_inside(s.height), window_offsets_inside(s.width), s.group_channels(),
                                  channels);
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const ConvolutionShape s = shape(input);
        GraphOperator result = GraphOperator("Conv").input().parameter("weight").window(s.height, s.width);
        if (has_bias) result.parameter("bias");
        if (s.groups != 1) result.integer("group", s.groups);
        return result;
    }

    template <class BuildContext>
    static FactoryOf<ops::Convolution, BuildContext, ConvolutionShape> operation(const BuildContext& build) {
        ConvolutionShape folded = shape(build.input);
        folded.bias = folded.bias || build.folded_norm;
        return {folded};
    }
};

}}  // namespace cupola::CUPOLA_ABI
