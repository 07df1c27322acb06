// SPDX-License-Identifier: Apache-2.0
//
// ResNet<L>: the residual network for CIFAR of He et al. (2015) with L = 6 n + 2 layers, as in TensorFlow's
// cifar10_estimator: a convolution with 16 channels, three stages of n basic blocks with 16, 32 and 64 channels, each
// stage after the first at half the height and width, the mean over height and width, and a linear layer.
//
//   basic block   conv 3x3 - batch norm - ReLU - conv 3x3 - batch norm, plus the shortcut, then ReLU
//   shortcut      the input itself; at the beginning of a stage option A: average pool, and channels of zeros
//
// Convolutions have no bias and one zero of padding on each side, whatever their stride (TensorFlow's SAME pads only
// the end where the stride is 2). The default of 11 classes is the ten classes and a spare one, which the original has
// for labels that begin at 1. The parameters have the names that PyTorch implementations of this network give them.
// ResNet<50> is a network for CIFAR too; the ResNet-50 for ImageNet is ResNet50 in models/torchvision_resnet.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/option_a_shortcut.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/models/impl/resnet_block_name.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

using ResNetNorm = BatchNorm2d<1e-5, 0.997>;
template <std::int64_t channels, std::int64_t stride_of = 1>
using ResNetConv = Conv2d<channels, 3, stride(stride_of), pad(1), no_bias, weights(glorot_uniform())>;

template <class Shortcut, std::int64_t channels, std::int64_t stride_of>
using ResNetBlock = Residual<Shortcut, Named<"conv1", ResNetConv<channels, stride_of>>, Named<"bn1", ResNetNorm>, ReLU,
                             Named<"conv2", ResNetConv<channels>>, Named<"bn2", ResNetNorm>>;

/// Module i of a stage: its blocks, with a ReLU after each.
template <std::size_t stage, std::size_t i>
struct ResNetModule {
    static constexpr std::int64_t channels = 8 << stage;
    static constexpr bool first_of_smaller = i == 0 && stage > 1;
    using Block = std::conditional_t<first_of_smaller, ResNetBlock<OptionAShortcut<channels, 2>, channels, 2>,
                                     ResNetBlock<Identity, channels, 1>>;
    using Type = Named<resnet_block_name<stage, i / 2>, Block>;
};
template <std::size_t stage, std::size_t i>
    requires(i % 2 == 1)
struct ResNetModule<stage, i> {
    using Type = ReLU;
};

template <std::int64_t classes, class Indices>
struct ResNetLayers;
template <std::int64_t classes, std::size_t... i>
struct ResNetLayers<classes, std::index_sequence<i...>> {
    using Type = Sequential<Input<32, 32, 3>, Named<"conv1", ResNetConv<16>>, Named<"bn1", ResNetNorm>, ReLU,
                            typename ResNetModule<1, i>::Type..., typename ResNetModule<2, i>::Type...,
                            typename ResNetModule<3, i>::Type..., GlobalAvgPool2d,
                            Named<"fc", Linear<classes, weights(glorot_uniform())>>>;
};

/// Blocks per stage; 1 for an invalid number of layers, which the assertion reports.
[[nodiscard]] consteval std::size_t resnet_blocks(std::int64_t layers) {
    return layers >= 8 && (layers - 2) % 6 == 0 ? static_cast<std::size_t>((layers - 2) / 6) : 1;
}

[[nodiscard]] consteval CompileTimeMessage resnet_diagnostic(std::int64_t layers) {
    CompileTimeMessage diagnostic;
    if (layers < 8 || (layers - 2) % 6 != 0) {
        diagnostic << "ResNet<" << layers
                   << "> is not possible: the number of layers must be 6 n + 2 (8, 14, 20, 26, 32, 38, 44, ...)";
    }
    return diagnostic;
}

}  // namespace impl

/// See the head of this file.
template <std::int64_t layers = 44, std::int64_t classes = 11>
struct ResNet : impl::ResNetLayers<classes, std::make_index_sequence<2 * impl::resnet_blocks(layers)>>::Type {
    static_assert(static_assert_message<impl::resnet_diagnostic(layers)>());
};

}}  // namespace cupola::CUPOLA_ABI
