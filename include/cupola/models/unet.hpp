// SPDX-License-Identifier: Apache-2.0
//
// UNet<height, width, channels, classes, base = 16, depth = 3>: the network of Ronneberger et al. (2015) for a result
// per pixel, with `same` padding, and upsampling by repetition in place of transposed convolution.
//
//   input    height x width x channels; height and width are multiples of 2^depth
//   output   height x width x classes, without an activation
//   down<i>  conv1 - ReLU - conv2 - ReLU, base 2^i channels; then MaxPool2d<2>       i = 0 .. depth - 1
//   bottom   conv1 - ReLU - conv2 - ReLU, base 2^depth channels
//   up<i>    Upsample2d<2>, the output of conv2 of down<i> concatenated after it; conv1 - ReLU - conv2 - ReLU,
//            base 2^i channels                                                       i = depth - 1 .. 0
//   head     a convolution of kernel 1 with `classes` channels
//
// The other convolutions are 3 x 3. All have a bias and are He normal. Parameters are named "down0.conv1.weight".
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/layers/upsample2d.hpp>
#include <cupola/models/impl/numbered_name.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Module i of level `level` on the way down and on the way up.
template <std::size_t level, std::size_t i, std::int64_t channels>
struct UNetDown {
    using Type = ReLU;
};
template <std::size_t level, std::int64_t channels>
struct UNetDown<level, 0, channels> {
    using Type = Named<numbered_name<level>("down", ".conv1"), Conv2d<channels, 3>>;
};
template <std::size_t level, std::int64_t channels>
struct UNetDown<level, 2, channels> {
    using Type = Named<numbered_name<level>("down", ".conv2"), Conv2d<channels, 3>>;
};
template <std::size_t level, std::int64_t channels>
struct UNetDown<level, 4, channels> {
    using Type = Keep<numbered_name<level>("down", "")>;
};
template <std::size_t level, std::int64_t channels>
struct UNetDown<level, 5, channels> {
    using Type = MaxPool2d<2>;
};
inline constexpr std::size_t unet_down_modules = 6;

template <std::size_t level, std::size_t i, std::int64_t channels>
struct UNetUp {
    using Type = ReLU;
};
template <std::size_t level, std::int64_t channels>
struct UNetUp<level, 0, channels> {
    using Type = Upsample2d<2>;
};
template <std::size_t level, std::int64_t channels>
struct UNetUp<level, 1, channels> {
    using Type = ConcatWith<numbered_name<level>("down", "")>;
};
template <std::size_t level, std::int64_t channels>
struct UNetUp<level, 2, channels> {
    using Type = Named<numbered_name<level>("up", ".conv1"), Conv2d<channels, 3>>;
};
template <std::size_t level, std::int64_t channels>
struct UNetUp<level, 4, channels> {
    using Type = Named<numbered_name<level>("up", ".conv2"), Conv2d<channels, 3>>;
};
inline constexpr std::size_t unet_up_modules = 6;

template <class Image, std::int64_t classes, std::int64_t base, std::size_t depth, class Down, class Up>
struct UNetLayers;
template <class Image, std::int64_t classes, std::int64_t base, std::size_t depth, std::size_t... D, std::size_t... U>
struct UNetLayers<Image, classes, base, depth, std::index_sequence<D...>, std::index_sequence<U...>> {
    template <std::size_t level>
    static constexpr std::int64_t channels = base << level;
    template <std::size_t place>
    static constexpr std::size_t level_up = depth - 1 - place / unet_up_modules;

    using Type = Sequential<
        Image,
        typename UNetDown<D / unet_down_modules, D % unet_down_modules, channels<D / unet_down_modules>>::Type...,
        Named<"bottom.conv1", Conv2d<channels<depth>, 3>>, ReLU, Named<"bottom.conv2", Conv2d<channels<depth>, 3>>,
        ReLU, typename UNetUp<level_up<U>, U % unet_up_modules, channels<level_up<U>>>::Type...,
        Named<"head", Conv2d<classes, 1>>>;
};

[[nodiscard]] consteval CompileTimeMessage unet_diagnostic(std::int64_t height, std::int64_t width,
                                                           std::int64_t depth) {
    CompileTimeMessage diagnostic;
    if (depth < 1 || depth > 9) {
        diagnostic << "a U-Net has a depth of 1 to 9, not " << depth;
    } else if (height % (std::int64_t{1} << depth) != 0 || width % (std::int64_t{1} << depth) != 0) {
        diagnostic << "a U-Net of depth " << depth << " needs a height and a width that are multiples of "
                   << (std::int64_t{1} << depth) << ", not " << Shape{height, width};
    }
    return diagnostic;
}

/// The depth, or 1 where the assertion reports an error.
[[nodiscard]] consteval std::size_t unet_depth(std::int64_t height, std::int64_t width, std::int64_t depth) {
    return unet_diagnostic(height, width, depth).empty() ? static_cast<std::size_t>(depth) : 1;
}

template <std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t classes, std::int64_t base,
          std::size_t depth>
using UNetOf = typename UNetLayers<Input<height, width, channels>, classes, base, depth,
                                   std::make_index_sequence<depth * unet_down_modules>,
                                   std::make_index_sequence<depth * unet_up_modules>>::Type;

}  // namespace impl

/// See the head of this file.
template <std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t classes, std::int64_t base = 16,
          std::int64_t depth = 3>
struct UNet : impl::UNetOf<impl::unet_diagnostic(height, width, depth).empty() ? height : 2,
                           impl::unet_diagnostic(height, width, depth).empty() ? width : 2, channels, classes, base,
                           impl::unet_depth(height, width, depth)> {
    static_assert(static_assert_message<impl::unet_diagnostic(height, width, depth)>());
};

}}  // namespace cupola::CUPOLA_ABI
