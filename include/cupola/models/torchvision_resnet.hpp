// SPDX-License-Identifier: Apache-2.0
//
// ResNet18, ResNet34 and ResNet50<classes = 1000, height = 224, width = height>: the residual networks for ImageNet of
// He et al. (2015) as torchvision has them. Files of its weights load with their names: "layer1.0.conv1.weight",
// "layer1.0.downsample.0.weight", "fc.weight". ResNet<50> in models/resnet.hpp is another network, that for CIFAR.
//
//   input       height x width x 3
//   stem        conv1 7x7, stride 2, 64 channels - bn1 - ReLU - maximum 3x3, stride 2
//   stages      layer1 to layer4, of 2, 2, 2, 2 blocks (18) or 3, 4, 6, 3 (34, 50) with n = 64, 128, 256, 512; the
//               first block of layer2 to layer4 has stride 2
//   basic       (18, 34) conv1 3x3 - bn1 - ReLU - conv2 3x3 - bn2, n channels; the stride is that of conv1
//   bottleneck  (50) conv1 1x1 - bn1 - ReLU - conv2 3x3 - bn2 - ReLU - conv3 1x1 - bn3, n, n and 4 n channels; the
//               stride is that of conv2 (version 1.5; in the paper it is that of conv1)
//   shortcut    the input itself, or where extents differ downsample.0, a 1x1 convolution, and downsample.1, its norm;
//               then ReLU of the sum
//   head        the mean over height and width, and fc, linear; output: classes, without an activation
//
// Convolutions have no bias, with the padding of both sides that keeps the extents without a stride; the norms have an
// epsilon of 1e-5 and a decay of 0.9, which is torchvision's momentum of 0.1. Initial values are distributed as
// torchvision's: convolutions He normal by their fan out, fc uniform within the root of 1 / fan in. `preprocessing`
// is that of the weights IMAGENET1K_V1 (models/image_preprocessing.hpp); those of IMAGENET1K_V2 have a shorter side of
// 232.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/models/impl/resnet_block_name.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <std::int64_t channels, std::int64_t kernel, std::int64_t stride_of = 1>
using TorchvisionConv =
    Conv2d<channels, kernel, stride(stride_of), pad(kernel / 2), no_bias, weights(he_normal_fan_out())>;
template <std::int64_t classes>
using TorchvisionLinear = Linear<classes, weights(fan_in_uniform()), biases(fan_in_uniform())>;

/// The blocks with n channels; the output has n times `expansion`.
struct BasicBlock {
    static constexpr std::int64_t expansion = 1;
    template <class Shortcut, std::int64_t n, std::int64_t stride_of>
    using Type = Residual<Shortcut, Named<"conv1", TorchvisionConv<n, 3, stride_of>>, Named<"bn1", BatchNorm2d<>>, ReLU,
                          Named<"conv2", TorchvisionConv<n, 3>>, Named<"bn2", BatchNorm2d<>>>;
};
struct Bottleneck {
    static constexpr std::int64_t expansion = 4;
    template <class Shortcut, std::int64_t n, std::int64_t stride_of>
    using Type = Residual<Shortcut, Named<"conv1", TorchvisionConv<n, 1>>, Named<"bn1", BatchNorm2d<>>, ReLU,
                          Named<"conv2", TorchvisionConv<n, 3, stride_of>>, Named<"bn2", BatchNorm2d<>>, ReLU,
                          Named<"conv3", TorchvisionConv<expansion * n, 1>>, Named<"bn3", BatchNorm2d<>>>;
};

/// Module i of a stage: its blocks, with a ReLU after each.
template <class Block, std::size_t stage, std::size_t i>
struct TorchvisionModule {
    static constexpr std::int64_t channels = 32 << stage, stride_of = i == 0 && stage > 1 ? 2 : 1;
    static constexpr bool projects = i == 0 && (stage > 1 || Block::expansion > 1);
    using Projected = Projection<Named<"downsample.0", TorchvisionConv<Block::expansion * channels, 1, stride_of>>,
                                 Named<"downsample.1", BatchNorm2d<>>>;
    using Shortcut = std::conditional_t<projects, Projected, Identity>;
    using Type = Named<resnet_block_name<stage, i / 2>, typename Block::template Type<Shortcut, channels, stride_of>>;
};
template <class Block, std::size_t stage, std::size_t i>
    requires(i % 2 == 1)
struct TorchvisionModule<Block, stage, i> {
    using Type = ReLU;
};

template <class Image, std::int64_t classes, class Block, class First, class Second, class Third, class Fourth>
struct TorchvisionLayers;
template <class Image, std::int64_t classes, class Block, std::size_t... i, std::size_t... j, std::size_t... k,
          std::size_t... l>
struct TorchvisionLayers<Image, classes, Block, std::index_sequence<i...>, std::index_sequence<j...>,
                         std::index_sequence<k...>, std::index_sequence<l...>> {
    using Type =
        Sequential<Image, Named<"conv1", TorchvisionConv<64, 7, 2>>, Named<"bn1", BatchNorm2d<>>, ReLU,
                   MaxPool2d<3, 2, pad(1)>, typename TorchvisionModule<Block, 1, i>::Type...,
                   typename TorchvisionModule<Block, 2, j>::Type..., typename TorchvisionModule<Block, 3, k>::Type...,
                   typename TorchvisionModule<Block, 4, l>::Type..., GlobalAvgPool2d,
                   Named<"fc", TorchvisionLinear<classes>>>;
};

/// With `blocks` of each of the four stages.
template <std::int64_t height, std::int64_t width, std::int64_t classes, class Block, std::size_t... blocks>
using TorchvisionResNet =
    typename TorchvisionLayers<Input<height, width, 3>, classes, Block, std::make_index_sequence<2 * blocks>...>::Type;

}  // namespace impl

/// See the head of this file.
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct ResNet18 : impl::TorchvisionResNet<height, width, classes, impl::BasicBlock, 2, 2, 2, 2> {
    static constexpr ImagePreprocessing preprocessing = torchvision_preprocessing(height, width);
};
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct ResNet34 : impl::TorchvisionResNet<height, width, classes, impl::BasicBlock, 3, 4, 6, 3> {
    static constexpr ImagePreprocessing preprocessing = torchvision_preprocessing(height, width);
};
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct ResNet50 : impl::TorchvisionResNet<height, width, classes, impl::Bottleneck, 3, 4, 6, 3> {
    static constexpr ImagePreprocessing preprocessing = torchvision_preprocessing(height, width);
};

}}  // namespace cupola::CUPOLA_ABI
