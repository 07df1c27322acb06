// SPDX-License-Identifier: Apache-2.0
//
// TransposedUNet<height, width, channels, classes, base = 64, depth = 4>: the network of Ronneberger et al. (2015) for
// a result per pixel, with `same` padding, batch normalisation, and transposed convolutions on the way up. The names of
// its parameters are those of the widely used PyTorch network milesial/Pytorch-UNet, `UNet(channels, classes,
// bilinear=False)`, whose files load with them where height and width are multiples of 2^depth.
//
//   input    height x width x channels; height and width are multiples of 2^depth
//   output   height x width x classes, without an activation
//   double   twice a convolution 3 x 3 without a bias - BatchNorm2d - ReLU, all of the same channels: double_conv.0, 1,
//            3 and 4
//   inc      double, base channels
//   down<i>  MaxPool2d<2>, then double, base 2^i channels (maxpool_conv.1)                     i = 1 .. depth
//   up<i>    a transposed convolution 2 x 2 with stride 2 that halves the channels (up), concatenated after the value
//            before the pooling of the same height; then double (conv)                          i = 1 .. depth
//   outc     a convolution 1 x 1 with `classes` channels (conv)
//
// The transposed convolutions and outc have a bias. Weights are He normal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/conv_transpose2d.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/models/impl/numbered_name.hpp>
#include <cupola/models/impl/sequential_of.hpp>
#include <cupola/models/unet.hpp>
#include <cupola/net/named_values.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <std::int64_t channels>
using UNetConv3 = Conv2d<channels, 3, pad(1), no_bias>;

/// The way down; level 0 has no pooling. `After` is Keep, but for the bottom, which is not read again.
template <std::size_t level, std::int64_t channels, class... After>
struct TransposedUNetDown {
    using Type =
        ModuleList<MaxPool2d<2>,
                   Named<numbered_name<level>("down", ".maxpool_conv.1.double_conv.0"), UNetConv3<channels>>,
                   Named<numbered_name<level>("down", ".maxpool_conv.1.double_conv.1"), BatchNorm2d<>>, ReLU,
                   Named<numbered_name<level>("down", ".maxpool_conv.1.double_conv.3"), UNetConv3<channels>>,
                   Named<numbered_name<level>("down", ".maxpool_conv.1.double_conv.4"), BatchNorm2d<>>, ReLU, After...>;
};
template <std::int64_t channels, class... After>
struct TransposedUNetDown<0, channels, After...> {
    using Type = ModuleList<Named<"inc.double_conv.0", UNetConv3<channels>>, Named<"inc.double_conv.1", BatchNorm2d<>>,
                            ReLU, Named<"inc.double_conv.3", UNetConv3<channels>>,
                            Named<"inc.double_conv.4", BatchNorm2d<>>, ReLU, After...>;
};

/// The way up: part `i` of it, which reads level `level`. The value from the way down comes first.
template <std::size_t i, std::size_t level, std::int64_t channels>
struct TransposedUNetUp {
    using Type = ModuleList<Named<numbered_name<i>("up", ".up"), ConvTranspose2d<channels, 2, stride(2)>>,
                            Keep<numbered_name<i>("raised", "")>, From<numbered_name<level>("x", "")>,
                            ConcatWith<numbered_name<i>("raised", "")>,
                            Named<numbered_name<i>("up", ".conv.double_conv.0"), UNetConv3<channels>>,
                            Named<numbered_name<i>("up", ".conv.double_conv.1"), BatchNorm2d<>>, ReLU,
                            Named<numbered_name<i>("up", ".conv.double_conv.3"), UNetConv3<channels>>,
                            Named<numbered_name<i>("up", ".conv.double_conv.4"), BatchNorm2d<>>, ReLU>;
};

template <class Image, std::int64_t classes, std::int64_t base, std::size_t depth, class Levels>
struct TransposedUNetLayers;
template <class Image, std::int64_t classes, std::int64_t base, std::size_t depth, std::size_t... L>
struct TransposedUNetLayers<Image, classes, base, depth, std::index_sequence<L...>> {
    template <std::size_t level>
    static constexpr std::int64_t channels = base << level;

    /// L counts the kept levels from the top.
    using Type =
        typename SequentialOf<ModuleList<Image>,
                              typename TransposedUNetDown<L, channels<L>, Keep<numbered_name<L>("x", "")>>::Type...,
                              typename TransposedUNetDown<depth, channels<depth>>::Type,
                              typename TransposedUNetUp<L + 1, depth - 1 - L, channels<depth - 1 - L>>::Type...,
                              ModuleList<Named<"outc.conv", Conv2d<classes, 1>>>>::Type;
};

template <std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t classes, std::int64_t base,
          std::size_t depth>
using TransposedUNetOf = typename TransposedUNetLayers<Input<height, width, channels>, classes, base, depth,
                                                       std::make_index_sequence<depth>>::Type;

}  // namespace impl

/// See the head of this file.
template <std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t classes, std::int64_t base = 64,
          std::int64_t depth = 4>
struct TransposedUNet : impl::TransposedUNetOf<impl::unet_diagnostic(height, width, depth).empty() ? height : 2,
                                               impl::unet_diagnostic(height, width, depth).empty() ? width : 2,
                                               channels, classes, base, impl::unet_depth(height, width, depth)> {
    static_assert(static_assert_message<impl::unet_diagnostic(height, width, depth)>());
};

}}  // namespace cupola::CUPOLA_ABI
