// SPDX-License-Identifier: Apache-2.0
//
// Conv2d<channels, kernel, options...>: two-dimensional convolution with bias (ops/convolution.hpp has the formula).
//
//   input   height x width x in_channels
//   output  ceil(height / stride) x ceil(width / stride) x channels with `same` padding (the default, TensorFlow's);
//           ((height - kernel) / stride + 1) and so on with `valid`; pad(n) is `valid` after n zeros on each side
//   weight  [channels, kernel, kernel, in_channels], He normal unless set with `weights(...)`
//   bias    [channels], zero unless set with `biases(...)`; absent with `no_bias`
#pragma once

#include <cstdint>

#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/convolution.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::int64_t channels, std::int64_t kernel, auto... options>
struct Conv2d {
    static constexpr bool options_known = (impl::one_of<std::remove_cvref_t<decltype(options)>, StrideOption, PadOption,
                                                        BiasOption, WeightsOption, BiasesOption, Padding> &&
                                           ...);
    static constexpr int paddings =
        (0 + ... + (impl::one_of<std::remove_cvref_t<decltype(options)>, PadOption, Padding> ? 1 : 0));
    static constexpr bool has_pad = (impl::one_of<std::remove_cvref_t<decltype(options)>, PadOption> || ...);
    static constexpr std::int64_t stride = impl::option_or(StrideOption{}, options...).value;
    static constexpr Padding padding = impl::option_or(Padding::same, options...);
    static constexpr std::int64_t pad_each = impl::option_or(PadOption{}, options...).value;
    static constexpr bool has_bias = impl::option_or(BiasOption{}, options...).value;

    static constexpr LayerKind kind = LayerKind::convolution;
    static constexpr LayerTraits traits{.backward_reads_output = false,
                                        .absorbs_relu = true,
                                        .can_omit_parameter_gradients = true,
                                        .reads_input_for_parameters = true};

    static constexpr LayerDescription description = LayerDescription("Conv2d ", channels, ", ", kernel, " x ", kernel)
                                                        .add_if(stride != 1, ", stride ", stride)
                                                        .add_if(!has_pad && padding == Padding::valid, ", valid")
                                                        .add_if(has_pad, ", pad ", pad_each)
                                                        .add_if(!has_bias, ", no bias");

    static constexpr ConvolutionShape shape(const Shape& input) {
        const auto axis = [](std::int64_t size) {
            return has_pad ? window_axis(size, kernel, stride, pad_each) : window_axis(size, kernel, stride, padding);
        };
        return {axis(input.height()), axis(input.width()), input.channels(), channels, has_bias};
    }

    static constexpr ShapeResult output(const Shape& input) {
        if (!options_known) {
            return ShapeError{
                "accepts only the options stride(n), same, valid, pad(n), no_bias, weights(...) and biases(...)"};
        }
        if (paddings > 1) return ShapeError{"accepts only one of same, valid and pad(n)"};
        if (!impl::given_once(options...)) return ShapeError{"is given an option twice"};
        if (has_pad && pad_each < 0) return ShapeError{"has a negative padding"};
        if (pad_each >= kernel)
            return ShapeError{"has a padding as large as its kernel: some outputs would not depend on the input"};
        if (channels < 1 || kernel < 1 || stride < 1) return ShapeError{"has a size of zero"};
        if (input.rank != 3) return ShapeError{"expects height x width x channels"};
        if (!are_window_extents({input.height(), input.width(), kernel, stride, pad_each}))
            return ShapeError{"has an input, a kernel, a stride or a padding of more than 2^29 rows or columns"};
        const ConvolutionShape s = shape(input);
        if (s.height.output < 1 || s.width.output < 1) return ShapeError{"has a kernel larger than its input"};
        return Shape{s.height.output, s.width.output, channels};
    }

    static constexpr Parameters parameters(const Shape& input) {
        const Parameter weight{.name = "weight",
                               .shape = {channels, kernel, kernel, input.channels()},
                               .initializer = impl::option_or(WeightsOption{he_normal()}, options...).value,
                               .fan_in = saturating_product(kernel, kernel, input.channels()),
                               .fan_out = saturating_product(kernel, kernel, channels),
                               .layout = FileLayout::channels_second};
        if (!has_bias) return weight;
        return {weight, Parameter{.name = "bias",
                                  .shape = {channels},
                                  .initializer = impl::option_or(BiasesOption{}, options...).value,
                                  .fan_in = weight.fan_in,
                                  .fan_out = weight.fan_out}};
    }

    /// Counts only the window offsets inside the image, which is the work that an implementation has to do.
    static constexpr std::int64_t multiply_adds(const Shape& input) {
        const ConvolutionShape s = shape(input);
        return saturating_product(window_offsets_inside(s.height), window_offsets_inside(s.width), s.in_channels,
                                  channels);
    }

    static constexpr GraphOperators onnx(const Shape& input) {
        const ConvolutionShape s = shape(input);
        GraphOperator result = GraphOperator("Conv").input().parameter("weight").window(s.height, s.width);
        if (has_bias) result.parameter("bias");
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
