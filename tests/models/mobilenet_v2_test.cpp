// SPDX-License-Identifier: Apache-2.0
//
// MobileNetV2: its size, and the names and extents of torchvision's file. What it computes is compared with PyTorch in
// tests/interop/.
#include <cupola/models/mobilenet_v2.hpp>

#include "../test.hpp"

#include <cupola/io/impl/checkpoint_layout.hpp>

#include "initial_values.hpp"

// The number of parameters in torchvision's documentation.
static_assert(MobileNetV2<>::parameter_count == 3'504'872 && MobileNetV2<>::output == Extents<1000>{});
static_assert(MobileNetV2<10, 64, 96>::input == Extents<64, 96, 3>{} &&
              MobileNetV2<10>::parameter_count == 3'504'872 - 990 * 1281);

TEST_CASE("MobileNetV2 has the names and extents of torchvision's file, in its order") {
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
    unit("features.0.0", "features.0.1", 3, 32, 3);
    std::int64_t in = 32, block = 1, sums = 0;
    struct Stage {
        std::int64_t expansion, channels, blocks, stride;
    };
    // The table of the paper and of torchvision.
    for (const Stage& stage : {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
                               Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}}) {
        for (std::int64_t i = 0; i < stage.blocks; ++i, ++block) {
            const std::string prefix = text("features.", block, ".conv.");
            const std::int64_t inside = stage.expansion * in;
            std::int64_t part = 0;
            const auto next = [&] { return text(prefix, part++); };
            if (stage.expansion > 1) {
                const std::string of = next();
                unit(of + ".0", of + ".1", in, inside, 1);
            }
            const std::string of = next();
            unit(of + ".0", of + ".1", 1, inside, 3);
            const std::string last = next();
            unit(last, next(), inside, stage.channels, 1);
            sums += (i > 0 || stage.stride == 1) && in == stage.channels ? 1 : 0;
            in = stage.channels;
        }
    }
    unit("features.18.0", "features.18.1", 320, 1280, 1);
    add("classifier.1.weight", {1000, 1280});
    add("classifier.1.bias", {1000});

    const impl::StoredTensors tensors = impl::stored_tensors(MobileNetV2<>::layers);
    for (const impl::StoredTensor& tensor : tensors.parameters)
        names.push_back(text(tensor.name, ": ", to_string(tensor.shape)));
    CHECK(names == expected);
    // As many as the file has, less a num_batches_tracked for each of 52 norms.
    CHECK(tensors.parameters.size() + tensors.buffers.size() == 314 - 52);
    CHECK(tensors.buffers.front().name == "features.0.1.running_mean");
    CHECK(tensors.buffers.back().name == "features.18.1.running_var");
    CHECK(std::ranges::count(MobileNetV2<>::layers, LayerKind::sum, &LayerInfo::kind) == sums);
    CHECK(sums == 10);
}

TEST_CASE("MobileNetV2 starts with torchvision's distributions") {
    const std::span<const LayerInfo> layers = MobileNetV2<10>::layers;
    // The fan out of a depthwise convolution is of all channels.
    CHECK(initial::deviation(initial::values_of(layers, "features.17.conv.1.0.weight")) ==
          doctest::Approx(std::sqrt(2.0 / (960 * 3 * 3))).epsilon(0.03));
    CHECK(initial::deviation(initial::values_of(layers, "features.18.0.weight")) ==
          doctest::Approx(std::sqrt(2.0 / 1280)).epsilon(0.02));
    CHECK(initial::deviation(initial::values_of(layers, "classifier.1.weight")) == doctest::Approx(0.01).epsilon(0.02));
    for (const LayerInfo& layer : layers) {
        if (layer.kind != LayerKind::convolution) continue;
        CHECK(layer.parameters.count == 1);
        CHECK(layer.parameters.list[0].initializer == he_normal_fan_out());
    }
}
