// SPDX-License-Identifier: Apache-2.0
//
// VGG16<classes = 1000, height = 224, width = height>: configuration D of Simonyan and Zisserman (2014), without batch
// normalisation, as torchvision has it. Files of its weights load with their names, which count ReLUs, maxima and
// dropouts: "features.0.weight" to "features.28.bias", "classifier.0.weight", "classifier.3.weight",
// "classifier.6.weight".
//
//   input       height x width x 3, each at least 32
//   features    five groups of 3x3 convolutions, each with a ReLU, and a maximum 2x2: 2 of 64 channels, 2 of 128, 3 of
//               256, 3 of 512, 3 of 512
//   average     to 7 x 7, which they are already of 224 x 224
//   classifier  linear 4096 - ReLU - dropout 0.5, twice, and linear
//   output      classes, without an activation
//
// timm's files of the same network have the classifier as convolutions, under other names: timm_vgg_names() reads and
// writes them. (Those of timm's ResNets, resnet18 to resnet50, have torchvision's names.)
//
// Initial values are distributed as torchvision's: biases are 0, convolutions He normal by their fan out, linear layers
// normal with a deviation of 0.01.
#pragma once

#include <cstdint>

#include <cupola/layers/adaptive_avg_pool2d.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/models/impl/sequential_of.hpp>
#include <cupola/net/name_table.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <std::int64_t channels>
using VggConv = Conv2d<channels, 3, pad(1), weights(he_normal_fan_out())>;
using VggPool = MaxPool2d<2, 2, valid>;
template <std::int64_t features>
using VggLinear = Linear<features, weights(normal(0.01))>;

/// What follows the features of height x width pixels.
template <std::int64_t height, std::int64_t width>
struct VggAverage {
    using Type = ModuleList<AdaptiveAvgPool2d<7>>;
};
template <>
struct VggAverage<7, 7> {
    using Type = ModuleList<>;
};

// A line per group, or two.
// clang-format off
template <std::int64_t classes, std::int64_t height, std::int64_t width>
struct VggLayers {
    using Type = typename SequentialOf<
        ModuleList<Input<height, width, 3>,
            Named<"features.0", VggConv<64>>, ReLU, Named<"features.2", VggConv<64>>, ReLU, VggPool,
            Named<"features.5", VggConv<128>>, ReLU, Named<"features.7", VggConv<128>>, ReLU, VggPool,
            Named<"features.10", VggConv<256>>, ReLU, Named<"features.12", VggConv<256>>, ReLU,
            Named<"features.14", VggConv<256>>, ReLU, VggPool,
            Named<"features.17", VggConv<512>>, ReLU, Named<"features.19", VggConv<512>>, ReLU,
            Named<"features.21", VggConv<512>>, ReLU, VggPool,
            Named<"features.24", VggConv<512>>, ReLU, Named<"features.26", VggConv<512>>, ReLU,
            Named<"features.28", VggConv<512>>, ReLU, VggPool>,
        typename VggAverage<height / 32, width / 32>::Type,
        ModuleList<Flatten,
            Named<"classifier.0", VggLinear<4096>>, ReLU, Dropout<0.5>,
            Named<"classifier.3", VggLinear<4096>>, ReLU, Dropout<0.5>,
            Named<"classifier.6", VggLinear<classes>>>>::Type;
};
// clang-format on

}  // namespace impl

/// See the head of this file.
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct VGG16 : impl::VggLayers<classes, height, width>::Type {
    static constexpr ImagePreprocessing preprocessing = torchvision_preprocessing(height, width);
};

/// What the parameters of VGG16 are in timm's files of vgg16, for LoadOptions::names and write_torch_file.
[[nodiscard]] inline NameTable timm_vgg_names() {
    return {{.file = {"pre_logits.fc1.weight"}, .here = "classifier.0.weight", .extents = {0, -1, 7, 7}},
            {.file = {"pre_logits.fc1.bias"}, .here = "classifier.0.bias"},
            {.file = {"pre_logits.fc2.weight"}, .here = "classifier.3.weight", .extents = {0, -1, 1, 1}},
            {.file = {"pre_logits.fc2.bias"}, .here = "classifier.3.bias"},
            {.file = {"head.fc.*"}, .here = "classifier.6.*"}};
}

}}  // namespace cupola::CUPOLA_ABI
