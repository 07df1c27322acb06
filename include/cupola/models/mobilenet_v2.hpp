// SPDX-License-Identifier: Apache-2.0
//
// MobileNetV2<classes = 1000, height = 224, width = height>: the network of Sandler et al. (2018) as torchvision has
// it, with all of its channels (a width multiplier of 1). Files of its weights load with their names:
// "features.0.0.weight", "features.2.conv.0.0.weight", "features.18.1.running_mean", "classifier.1.weight". Those of
// timm's mobilenetv2_100 have others: timm_mobilenet_v2_names() reads and writes them.
//
//   input       height x width x 3
//   features.0  a convolution 3x3, stride 2, 32 channels
//   blocks      features.1 to features.17: 1 of 16 channels, 2 of 24, 3 of 32, 4 of 64, 3 of 96, 3 of 160, 1 of 320;
//               the first of 24, 32, 64 and 160 channels has stride 2
//   block       a convolution 1x1 to 6 times the input's channels (not in features.1) - a depthwise one 3x3 with the
//               block's stride - one 1x1 to the block's channels; plus the block's input, where its stride is 1 and its
//               channels are those of the input
//   features.18 a convolution 1x1, 1280 channels
//   classifier  the mean over height and width, dropout 0.2, and linear; output: classes, without an activation
//
// Convolutions have no bias, and after each is a norm with an epsilon of 1e-5 and a decay of 0.9, which is
// torchvision's momentum of 0.1, and a ReLU6, but for the last one of a block. Initial values are distributed as
// torchvision's: convolutions He normal by their fan out, the linear layer normal with a deviation of 0.01.
// `preprocessing` is that of the weights IMAGENET1K_V1 (models/image_preprocessing.hpp); those of IMAGENET1K_V2 have a
// shorter side of 232.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu6.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/models/impl/numbered_name.hpp>
#include <cupola/models/impl/sequential_of.hpp>
#include <cupola/models/impl/timm_names.hpp>
#include <cupola/net/name_table.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <std::int64_t channels, std::int64_t kernel_size, auto... options>
using MobileNetConv = Conv2d<channels, kernel_size, no_bias, weights(he_normal_fan_out()), options...>;

/// Block n. With other channels or a stride it has no sum, and the names of its layers are whole.
template <std::size_t n, std::int64_t in, std::int64_t out, std::int64_t stride_of = 1>
struct MobileNetBlock {
    using Type = ModuleList<Named<numbered_name<n>("features.", ".conv.0.0"), MobileNetConv<6 * in, 1>>,
                            Named<numbered_name<n>("features.", ".conv.0.1"), BatchNorm2d<>>, ReLU6,
                            Named<numbered_name<n>("features.", ".conv.1.0"),
                                  MobileNetConv<6 * in, 3, stride(stride_of), pad(1), depthwise>>,
                            Named<numbered_name<n>("features.", ".conv.1.1"), BatchNorm2d<>>, ReLU6,
                            Named<numbered_name<n>("features.", ".conv.2"), MobileNetConv<out, 1>>,
                            Named<numbered_name<n>("features.", ".conv.3"), BatchNorm2d<>>>;
};
template <std::size_t n, std::int64_t channels>
struct MobileNetBlock<n, channels, channels, 1> {
    using Type = ModuleList<Named<
        numbered_name<n>("features.", ""),
        Residual<Identity, Named<"conv.0.0", MobileNetConv<6 * channels, 1>>, Named<"conv.0.1", BatchNorm2d<>>, ReLU6,
                 Named<"conv.1.0", MobileNetConv<6 * channels, 3, pad(1), depthwise>>, Named<"conv.1.1", BatchNorm2d<>>,
                 ReLU6, Named<"conv.2", MobileNetConv<channels, 1>>, Named<"conv.3", BatchNorm2d<>>>>>;
};

// clang-format off
template <std::int64_t classes, std::int64_t height, std::int64_t width>
struct MobileNetV2Layers {
    using Type = typename SequentialOf<
        ModuleList<Input<height, width, 3>,
                   Named<"features.0.0", MobileNetConv<32, 3, stride(2), pad(1)>>,
                   Named<"features.0.1", BatchNorm2d<>>, ReLU6,
                   Named<"features.1.conv.0.0", MobileNetConv<32, 3, pad(1), depthwise>>,
                   Named<"features.1.conv.0.1", BatchNorm2d<>>, ReLU6,
                   Named<"features.1.conv.1", MobileNetConv<16, 1>>, Named<"features.1.conv.2", BatchNorm2d<>>>,
        typename MobileNetBlock<2, 16, 24, 2>::Type, typename MobileNetBlock<3, 24, 24>::Type,
        typename MobileNetBlock<4, 24, 32, 2>::Type, typename MobileNetBlock<5, 32, 32>::Type,
        typename MobileNetBlock<6, 32, 32>::Type,
        typename MobileNetBlock<7, 32, 64, 2>::Type, typename MobileNetBlock<8, 64, 64>::Type,
        typename MobileNetBlock<9, 64, 64>::Type, typename MobileNetBlock<10, 64, 64>::Type,
        typename MobileNetBlock<11, 64, 96>::Type, typename MobileNetBlock<12, 96, 96>::Type,
        typename MobileNetBlock<13, 96, 96>::Type,
        typename MobileNetBlock<14, 96, 160, 2>::Type, typename MobileNetBlock<15, 160, 160>::Type,
        typename MobileNetBlock<16, 160, 160>::Type, typename MobileNetBlock<17, 160, 320>::Type,
        ModuleList<Named<"features.18.0", MobileNetConv<1280, 1>>, Named<"features.18.1", BatchNorm2d<>>, ReLU6,
                   GlobalAvgPool2d, Dropout<0.2>, Named<"classifier.1", Linear<classes, weights(normal(0.01))>>>>::Type;
};
// clang-format on

}  // namespace impl

/// See the head of this file.
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct MobileNetV2 : impl::MobileNetV2Layers<classes, height, width>::Type {
    static constexpr ImagePreprocessing preprocessing = torchvision_preprocessing(height, width);
};

/// What the parameters of MobileNetV2 are in timm's files of mobilenetv2_100, for LoadOptions::names and
/// write_torch_file.
[[nodiscard]] inline NameTable timm_mobilenet_v2_names() {
    return impl::timm_names({.ends = {"features.0.0", "features.0.1", "features.18.0", "features.18.1", "classifier.1"},
                             .block = "features.",
                             .number = 1,
                             .first = {".conv.0.0", ".conv.0.1", ".conv.1", ".conv.2"},
                             .other = {".conv.0.0", ".conv.0.1", ".conv.1.0", ".conv.1.1", ".conv.2", ".conv.3"},
                             .stages = {1, 2, 3, 4, 3, 3, 1}});
}

}}  // namespace cupola::CUPOLA_ABI
