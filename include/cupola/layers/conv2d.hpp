// SPDX-License-Identifier: Apache-2.0
//
// Conv2d<channels, kernel, options...>: two-dimensional convolution with bias (ops/convolution.hpp has the formula).
//
//   input   height x width x in_channels
//   output  ceil(height / stride) x ceil(width / stride) x channels with `same` padding (the default, TensorFlow's),
//           ((height - kernel) / stride + 1) and so on with `valid`
//   weight  [channels, kernel, kernel, in_channels], He normal unless `weights(...)` says otherwise
//   bias    [channels], zero unless `biases(...)`; none with `no_bias`
#pragma once

#include <cstdint>

#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>
#include <cupola/ops/convolution.hpp>

namespace cupola::inline CUPOLA_ABI {

template <std::int64_t channels, std::int64_t kernel, auto... options>
struct Conv2d {
    static constexpr bool options_known =
        (impl::one_of<std::remove_cv_t<decltype(options)>, StrideOption, BiasOption, WeightsOption, BiasesOption, Padding> &&
         ...);
    static constexpr std::int64_t stride = impl::option_or(StrideOption{}, options...).value;
    static constexpr Padding padding = impl::option_or(Padding::same, options...);
    static constexpr bool has_bias = impl::option_or(BiasOption{}, options...).value;

    static constexpr LayerTraits traits{.backward_reads_output = false, .absorbs_relu = true};

    static constexpr ConvolutionShape shape(const Shape& input) {
        return {window_axis(input.height(), kernel, stride, padding), window_axis(input.width(), kernel, stride, padding),
                input.channels(), channels, has_bias};
    }

    static constexpr Inferred output(const Shape& input) {
        if (!options_known) {
            return Mistake{"takes the options stride(n), same, valid, no_bias, weights(...) and biases(...)"};
        }
        if (channels < 1 || kernel < 1 || stride < 1) return Mistake{"has a size of zero"};
        if (input.rank != 3) return Mistake{"takes height x width x channels"};
        const ConvolutionShape s = shape(input);
        if (s.height.output < 1 || s.width.output < 1) return Mistake{"has a kernel larger than its input"};
        return Shape{s.height.output, s.width.output, channels};
    }

    static constexpr Parameters parameters(const Shape& input) {
        const Parameter weight{.name = "weight",
                               .shape = {channels, kernel, kernel, input.channels()},
                               .initializer = impl::option_or(WeightsOption{he_normal()}, options...).value,
                               .fan_in = kernel * kernel * input.channels(),
                               .fan_out = kernel * kernel * channels};
        if (!has_bias) return weight;
        return {weight, Parameter{.name = "bias",
                                  .shape = {channels},
                                  .initializer = impl::option_or(BiasesOption{}, options...).value}};
    }

    /// Taps inside the image only: what an implementation has to compute.
    static constexpr std::int64_t multiply_adds(const Shape& input) {
        const ConvolutionShape s = shape(input);
        return taps_inside(s.height) * taps_inside(s.width) * s.in_channels * channels;
    }

    template <class Site>
    static ops::Convolution<typename Site::DeviceType, typename Site::Element> operation(const Site& site) {
        return {site, shape(site.input)};
    }
};

}  // namespace cupola::inline CUPOLA_ABI
