// SPDX-License-Identifier: Apache-2.0
//
// What Conv2d and ConvTranspose2d have in common: the sizes of a kernel and of the options, the errors of groups, and
// the parameters.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <cupola/layers/layer.hpp>
#include <cupola/layers/options.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <std::int64_t channels, auto kernel, auto... options>
struct ConvolutionOptions {
    static constexpr bool has_pad = (one_of<std::remove_cvref_t<decltype(options)>, PadOption, PadsOption> || ...);
    static constexpr WindowSides kernels = window_sides<WindowOption>(kernel),
                                 strides = sides_option<StrideOption, StridesOption>(options...),
                                 pads = has_pad ? sides_option<PadOption, PadsOption>(options...) : WindowSides{},
                                 dilations = sides_option<DilationOption, DilationsOption>(options...);
    static constexpr GroupsOption groups = option_or(GroupsOption{}, options...);
    static constexpr bool has_bias = option_or(BiasOption{}, options...).value;

    // The type's name in a message has no options.
    static constexpr LayerDescription input_groups_error{"has ", groups.value,
                                                         " groups, which do not divide the channels of its input"};
    static constexpr LayerDescription output_groups_error{"has ", groups.value,
                                                          " groups, which do not divide its own channels"};
    static constexpr LayerDescription wrong_size = size_error({{"number of channels", channels},
                                                               {"kernel", kernels.least()},
                                                               {"stride", strides.least()},
                                                               {"dilation", dilations.least()},
                                                               {"number of groups", groups.value}});

    /// The error of groups(n) for an input of so many channels; empty if there is none.
    [[nodiscard]] static constexpr std::string_view groups_error(std::int64_t in_channels) {
        if constexpr (groups.value > 1) {
            if (in_channels % groups.value != 0) return input_groups_error;
            if (channels % groups.value != 0) return output_groups_error;
        }
        return {};
    }

    /// The rows and columns between the first element of the kernel and the last.
    [[nodiscard]] static constexpr WindowSides reach() {
        return {saturating_product(dilations.height, kernels.height - 1),
                saturating_product(dilations.width, kernels.width - 1)};
    }

    /// A weight of these extents, and the bias if there is one. A fan is the elements of a kernel times `in` or `out`.
    [[nodiscard]] static constexpr Parameters weight_and_bias(const Shape& extents, std::int64_t in, std::int64_t out) {
        const Parameter weight{.name = "weight",
                               .shape = extents,
                               .initializer = option_or(WeightsOption{he_normal()}, options...).value,
                               .fan_in = saturating_product(kernels.height, kernels.width, in),
                               .fan_out = saturating_product(kernels.height, kernels.width, out),
                               .layout = FileLayout::channels_second};
        if (!has_bias) return weight;
        return {weight, Parameter{.name = "bias",
                                  .shape = {channels},
                                  .initializer = option_or(BiasesOption{}, options...).value,
                                  .fan_in = weight.fan_in,
                                  .fan_out = weight.fan_out}};
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
