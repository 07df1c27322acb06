// SPDX-License-Identifier: Apache-2.0
//
// EfficientNetLite0: its size, and the names and extents of the published file. What it computes is compared with
// PyTorch in tests/interop/.
#include <cupola/models/efficientnet_lite0.hpp>

#include "../test.hpp"

#include <cupola/io/impl/checkpoint_layout.hpp>

#include "initial_values.hpp"

// The number of elements of the published file's parameters.
static_assert(EfficientNetLite0<>::parameter_count == 4'652'008 && EfficientNetLite0<>::output == Extents<1000>{});
static_assert(EfficientNetLite0<10, 64, 96>::input == Extents<64, 96, 3>{} &&
              EfficientNetLite0<10, 64, 96>::parameter_count == 4'652'008 - 990 * 1281);

TEST_CASE("EfficientNetLite0 has the names and extents of the published file, in its order") {
    std::vector<std::string> expected, names;
    const auto add = [&](const std::string& name, const Shape& shape) {
        expected.push_back(text(name, ": ", to_string(shape)));
    };
    const auto unit = [&](const std::string& convolution, const std::string& norm, std::int64_t in, std::int64_t out,
                          std::int64_t kernel) {
        add(convolution + ".weight", {out, in, kernel, kernel});
        add(norm + ".weight", {out});
        add(norm + ".bias", {out});
    };
    unit("_conv_stem", "_bn0", 3, 32, 3);
    std::int64_t in = 32, block = 0, sums = 0, extent = 112;
    struct Stage {
        std::int64_t blocks, kernel, stride, expansion, channels;
    };
    // TensorFlow's table.
    for (const Stage& stage :
         {Stage{1, 3, 1, 1, 16}, Stage{2, 3, 2, 6, 24}, Stage{2, 5, 2, 6, 40}, Stage{3, 3, 2, 6, 80},
          Stage{3, 5, 1, 6, 112}, Stage{4, 5, 2, 6, 192}, Stage{1, 3, 1, 6, 320}}) {
        for (std::int64_t i = 0; i < stage.blocks; ++i, ++block) {
            const std::string prefix = text("_blocks.", block, ".");
            const std::int64_t inside = stage.expansion * in;
            if (stage.expansion > 1) unit(prefix + "_expand_conv", prefix + "_bn0", in, inside, 1);
            unit(prefix + "_depthwise_conv", prefix + "_bn1", 1, inside, stage.kernel);
            unit(prefix + "_project_conv", prefix + "_bn2", inside, stage.channels, 1);
            sums += (i > 0 || stage.stride == 1) && in == stage.channels ? 1 : 0;
            if (i == 0) extent /= stage.stride;
            in = stage.channels;
        }
    }
    unit("_conv_head", "_bn1", 320, 1280, 1);
    add("_fc.weight", {1000, 1280});
    add("_fc.bias", {1000});

    const std::span<const LayerInfo> layers = EfficientNetLite0<>::layers;
    const impl::StoredTensors tensors = impl::stored_tensors(layers);
    for (const impl::StoredTensor& tensor : tensors.parameters)
        names.push_back(text(tensor.name, ": ", to_string(tensor.shape)));
    CHECK(names == expected);
    // As many as the file has, less a num_batches_tracked for each of 49 norms.
    CHECK(tensors.parameters.size() + tensors.buffers.size() == 296 - 49);
    CHECK(tensors.buffers.front().name == "_bn0.running_mean");
    CHECK(tensors.buffers.back().name == "_bn1.running_var");
    CHECK(std::ranges::count(layers, LayerKind::sum, &LayerInfo::kind) == sums);
    CHECK(sums == 9);
    const auto mean = std::ranges::find(layers, Shape{1280}, &LayerInfo::output);
    REQUIRE(mean != layers.end());
    CHECK(mean->input == Shape{extent, extent, 1280});
    CHECK(extent == 7);
    for (const LayerInfo& layer : layers) {
        if (layer.kind == LayerKind::batch_norm)
            CHECK((layer.kind_parts.batch_norm.epsilon == 1e-3 && layer.kind_parts.batch_norm.decay == 0.99));
    }
}

TEST_CASE("EfficientNetLite0 starts with TensorFlow's distributions") {
    const std::span<const LayerInfo> layers = EfficientNetLite0<10, 64, 96>::layers;
    // The fan out of a depthwise convolution is of one channel.
    CHECK(initial::deviation(initial::values_of(layers, "_blocks.15._depthwise_conv.weight")) ==
          doctest::Approx(std::sqrt(2.0 / (3 * 3))).epsilon(0.03));
    CHECK(initial::deviation(initial::values_of(layers, "_conv_head.weight")) ==
          doctest::Approx(std::sqrt(2.0 / 1280)).epsilon(0.02));
    const std::vector<float> linear = initial::values_of(layers, "_fc.weight");
    CHECK(std::ranges::max(linear) <= 1 / std::sqrt(10.0F));
    CHECK(initial::deviation(linear) == doctest::Approx(1 / std::sqrt(30.0)).epsilon(0.02));
}

TEST_CASE("EfficientNetLite0 has TensorFlow's preprocessing") {
    constexpr ImagePreprocessing of = EfficientNetLite0<>::preprocessing;
    CHECK((of.fit.shorter_side == 256 && of.fit.height == 224 && of.fit.width == 224));
    CHECK(of.fit.filter == ResizeFilter::bicubic);
    // (x - 127) / 128 of bytes.
    CHECK(std::ranges::all_of(of.mean, [](float mean) { return mean * 255 == doctest::Approx(127); }));
    CHECK(std::ranges::all_of(of.deviation, [](float deviation) { return deviation * 255 == doctest::Approx(128); }));
    CHECK(of.source == "TensorFlow efficientnet-lite0");
}
