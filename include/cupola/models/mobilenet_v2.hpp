// SPDX-License-Identifier: Apache-2.0
//
// MobileNetV2<classes = 1000, height = 224, width = height>: the network of Sandler et al. (2018) as torchvision has
// it, with all of its channels (a width multiplier of 1). Files of its weights load with their names:
// "features.0.0.weight", "features.2.conv.0.0.weight", "features.18.1.running_mean", "classifier.1.weight".
//
//   input       height x width x 3
//   features.0  a convolution 3x3, stride 2, 32 channels
//   blocks      features.1 to features.17: 1 of 16 channels, 2 of 24, 3 of 32, 4 of 64, 3 of 96, 3 of 160, 1 of 320;
//               the first of 24, 32, 64 and 160 channels has stride 2
//   block       a convolution 1x1 to 6 times the input's channels (not in features.1) - a depthwise one 3x3 with the
//               block's stride - one 1x1 to the block's channels; plus the block's input, where the extents are equal
//   features.18 a convolution 1x1, 1280 channels
//   classifier  the mean over height and width, dropout 0.2, and linear; output: classes, without an activation
//
// Convolutions have no bias, and behind each is a norm with an epsilon of 1e-5 and a decay of 0.9, which is
// torchvision's momentum of 0.1, and a ReLU6, but for the last one of a block. Initial values are distributed as
// torchvision's: convolutions He normal by their fan out, the linear layer normal with a deviation of 0.01.
// `preprocessing` is that of the weights IMAGENET1K_V1 (models/image_preprocessing.hpp); those of IMAGENET1K_V2 have a
// shorter side of 232.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/core/fixed_string.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu6.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// "features.2.conv.0.0" of "features.2." and "conv.0.0".
template <FixedString prefix, FixedString name>
inline constexpr auto mobilenet_name = [] {
    FixedString<sizeof(prefix.characters) + sizeof(name.characters) - 1> joined;
    std::size_t size = 0;
    for (const char c : prefix.view()) joined.characters[size++] = c;
    for (const char c : name.view()) joined.characters[size++] = c;
    return joined;
}();

/// A convolution `name` and a norm `norm`, both after the prefix.
template <FixedString prefix, FixedString name, FixedString norm, std::int64_t channels, auto kernel, auto... options>
using MobileNetConv = ModuleList<
    Named<mobilenet_name<prefix, name>, Conv2d<channels, kernel, no_bias, weights(he_normal_fan_out()), options...>>,
    Named<mobilenet_name<prefix, norm>, BatchNorm2d<>>>;

template <class... Lists>
struct JoinedModules;
template <class... Modules>
struct JoinedModules<ModuleList<Modules...>> {
    using Type = ModuleList<Modules...>;
};
template <class... First, class... Second, class... Others>
struct JoinedModules<ModuleList<First...>, ModuleList<Second...>, Others...>
    : JoinedModules<ModuleList<First..., Second...>, Others...> {};

/// The modules of a block that has `inside` channels between its convolutions.
template <FixedString prefix, std::int64_t inside, std::int64_t out, std::int64_t stride_of>
using MobileNetModules = typename JoinedModules<
    MobileNetConv<prefix, "conv.0.0", "conv.0.1", inside, 1>, ModuleList<ReLU6>,
    MobileNetConv<prefix, "conv.1.0", "conv.1.1", inside, 3, stride(stride_of), pad(1), depthwise>, ModuleList<ReLU6>,
    MobileNetConv<prefix, "conv.2", "conv.3", out, 1>>::Type;

template <FixedString name, class List>
struct MobileNetSum;
template <FixedString name, class... Modules>
struct MobileNetSum<name, ModuleList<Modules...>> {
    using Type = ModuleList<Named<name, Residual<Identity, Modules...>>>;
};

/// A block: with other channels or a stride without the sum, and its names are whole.
template <FixedString name, std::int64_t in, std::int64_t out, std::int64_t stride_of = 1>
struct MobileNetBlock {
    using Type = MobileNetModules<mobilenet_name<name, ".">, 6 * in, out, stride_of>;
};
template <FixedString name, std::int64_t channels>
struct MobileNetBlock<name, channels, channels, 1>
    : MobileNetSum<name, MobileNetModules<"", 6 * channels, channels, 1>> {};

template <class List>
struct MobileNetSequential;
template <class... Modules>
struct MobileNetSequential<ModuleList<Modules...>> {
    using Type = Sequential<Modules...>;
};

// clang-format off
template <std::int64_t classes, std::int64_t height, std::int64_t width>
using MobileNetV2Modules = typename MobileNetSequential<typename JoinedModules<
    ModuleList<Input<height, width, 3>>,
    MobileNetConv<"features.0.", "0", "1", 32, 3, stride(2), pad(1)>, ModuleList<ReLU6>,
    MobileNetConv<"features.1.", "conv.0.0", "conv.0.1", 32, 3, pad(1), depthwise>, ModuleList<ReLU6>,
    MobileNetConv<"features.1.", "conv.1", "conv.2", 16, 1>,
    typename MobileNetBlock<"features.2", 16, 24, 2>::Type, typename MobileNetBlock<"features.3", 24, 24>::Type,
    typename MobileNetBlock<"features.4", 24, 32, 2>::Type, typename MobileNetBlock<"features.5", 32, 32>::Type,
    typename MobileNetBlock<"features.6", 32, 32>::Type,
    typename MobileNetBlock<"features.7", 32, 64, 2>::Type, typename MobileNetBlock<"features.8", 64, 64>::Type,
    typename MobileNetBlock<"features.9", 64, 64>::Type, typename MobileNetBlock<"features.10", 64, 64>::Type,
    typename MobileNetBlock<"features.11", 64, 96>::Type, typename MobileNetBlock<"features.12", 96, 96>::Type,
    typename MobileNetBlock<"features.13", 96, 96>::Type,
    typename MobileNetBlock<"features.14", 96, 160, 2>::Type, typename MobileNetBlock<"features.15", 160, 160>::Type,
    typename MobileNetBlock<"features.16", 160, 160>::Type,
    typename MobileNetBlock<"features.17", 160, 320>::Type,
    MobileNetConv<"features.18.", "0", "1", 1280, 1>, ModuleList<ReLU6>,
    ModuleList<GlobalAvgPool2d, Dropout<0.2>, Named<"classifier.1", Linear<classes, weights(normal(0.01))>>>
    >::Type>::Type;
// clang-format on

}  // namespace impl

/// See the head of this file.
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct MobileNetV2 : impl::MobileNetV2Modules<classes, height, width> {
    static constexpr ImagePreprocessing preprocessing = torchvision_preprocessing(height, width);
};

}}  // namespace cupola::CUPOLA_ABI
