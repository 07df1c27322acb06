// SPDX-License-Identifier: Apache-2.0
//
// ConvNeXtTiny<classes = 1000, height = 224, width = height>: the network of Liu et al. (2022) as torchvision has it.
// Files of its weights load with their names: "features.0.0.weight", "features.1.0.layer_scale",
// "features.1.0.block.3.weight", "features.2.1.weight", "classifier.2.weight". Those of timm's convnext_tiny have
// others: timm_convnext_names() reads and writes them.
//
//   input       height x width x 3, at least 32 x 32
//   features.0  a convolution 4x4 with stride 4, 96 channels, and a norm
//   blocks      features.1, 3, 5 and 7: 3 of 96 channels, 3 of 192, 9 of 384, 3 of 768
//   block       a depthwise convolution 7x7, a norm, linear to 4 times the channels and back with a GELU between them,
//               a factor per channel, initially 1e-6, and stochastic depth; plus the block's input
//   between     features.2, 4 and 6: a norm, and a convolution 2x2 with stride 2 to the next channels
//   classifier  the mean over height and width, a norm, and linear; output: classes, without an activation
//
// Norms are of the channels of a position, with an epsilon of 1e-6. The rate of stochastic depth grows from 0 in the
// first block to 0.1 in the last. Weights are initially normal with a deviation of 0.02, and biases 0, as
// torchvision's. `preprocessing` is that of the weights IMAGENET1K_V1 (models/image_preprocessing.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/drop_path.hpp>
#include <cupola/layers/gelu.hpp>
#include <cupola/layers/global_avg_pool2d.hpp>
#include <cupola/layers/layer_norm.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/scale_channels.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/models/impl/numbered_name.hpp>
#include <cupola/net/name_table.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <std::int64_t channels, std::int64_t kernel_size, auto... options>
using ConvNeXtConv = Conv2d<channels, kernel_size, weights(normal(0.02)), options...>;
template <std::int64_t features, auto... options>
using ConvNeXtLinear = Linear<features, weights(normal(0.02)), options...>;
using ConvNeXtNorm = LayerNorm<1e-6>;

/// Block i of a stage, of which `before` blocks come before; a network has 18.
template <std::size_t stage, std::size_t before, std::size_t i>
struct ConvNeXtBlock {
    static constexpr std::int64_t channels = std::int64_t{96} << stage;
    using Type = Named<
        numbered_name<i>(numbered_name<2 * stage + 1>("features.", ".").characters, ""),
        Residual<Identity, Named<"block.0", ConvNeXtConv<channels, 7, pad(3), depthwise>>,
                 Named<"block.2", ConvNeXtNorm>, Named<"block.3", ConvNeXtLinear<4 * channels, per_position>>, GELU<>,
                 Named<"block.5", ConvNeXtLinear<channels, per_position>>, Named<"layer_scale", ScaleChannels<1e-6>>,
                 DropPath<0.1 * static_cast<double>(before + i) / 17>>>;
};

template <class Image, std::int64_t classes, class Three, class Nine>
struct ConvNeXtTinyLayers;
template <class Image, std::int64_t classes, std::size_t... i, std::size_t... j>
struct ConvNeXtTinyLayers<Image, classes, std::index_sequence<i...>, std::index_sequence<j...>> {
    using Type = Sequential<
        Image, Named<"features.0.0", ConvNeXtConv<96, 4, stride(4), valid>>, Named<"features.0.1", ConvNeXtNorm>,
        typename ConvNeXtBlock<0, 0, i>::Type..., Named<"features.2.0", ConvNeXtNorm>,
        Named<"features.2.1", ConvNeXtConv<192, 2, stride(2), valid>>, typename ConvNeXtBlock<1, 3, i>::Type...,
        Named<"features.4.0", ConvNeXtNorm>, Named<"features.4.1", ConvNeXtConv<384, 2, stride(2), valid>>,
        typename ConvNeXtBlock<2, 6, j>::Type..., Named<"features.6.0", ConvNeXtNorm>,
        Named<"features.6.1", ConvNeXtConv<768, 2, stride(2), valid>>, typename ConvNeXtBlock<3, 15, i>::Type...,
        GlobalAvgPool2d, Named<"classifier.0", ConvNeXtNorm>, Named<"classifier.2", ConvNeXtLinear<classes>>>;
};

}  // namespace impl

/// See the head of this file.
template <std::int64_t classes = 1000, std::int64_t height = 224, std::int64_t width = height>
struct ConvNeXtTiny : impl::ConvNeXtTinyLayers<Input<height, width, 3>, classes, std::make_index_sequence<3>,
                                               std::make_index_sequence<9>>::Type {
    static constexpr ImagePreprocessing preprocessing = torchvision_preprocessing(height, width, 236);
};

/// What the parameters of ConvNeXtTiny are in timm's files of convnext_tiny, for LoadOptions::names and
/// write_torch_file.
[[nodiscard]] inline NameTable timm_convnext_names() {
    NameTable table{{.file = {"stem.*"}, .here = "features.0.*"},
                    {.file = {"head.norm.*"}, .here = "classifier.0.*"},
                    {.file = {"head.fc.*"}, .here = "classifier.2.*"}};
    for (int stage = 0; stage < 4; ++stage) {
        const std::string file = text("stages.", stage, '.'), here = text("features.", 2 * stage + 1, ".*.");
        const auto add = [&](const char* in_file, const char* own) {
            table.entries.push_back({.file = {text(file, "blocks.*.", in_file, ".*")}, .here = text(here, own, ".*")});
        };
        add("conv_dw", "block.0");
        add("norm", "block.2");
        add("mlp.fc1", "block.3");
        add("mlp.fc2", "block.5");
        table.entries.push_back({.file = {file + "blocks.*.gamma"}, .here = here + "layer_scale", .extents = {0}});
        if (stage == 0) continue;
        table.entries.push_back({.file = {file + "downsample.*"}, .here = text("features.", 2 * stage, ".*")});
    }
    return table;
}

}}  // namespace cupola::CUPOLA_ABI
