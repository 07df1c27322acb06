// SPDX-License-Identifier: Apache-2.0
//
// ResNet18, ResNet34 and ResNet50: their sizes, and the names and extents of torchvision's files. What they compute is
// compared with PyTorch in tests/interop/.
#include <cupola/models/torchvision_resnet.hpp>

#include "../test.hpp"

#include <cupola/io/impl/checkpoint_layout.hpp>

#include "initial_values.hpp"

// The numbers of parameters in torchvision's documentation.
static_assert(ResNet18<>::parameter_count == 11'689'512 && ResNet18<>::output == Extents<1000>{});
static_assert(ResNet34<>::parameter_count == 21'797'672 && ResNet34<>::input == Extents<224, 224, 3>{});
static_assert(ResNet50<>::parameter_count == 25'557'032);
static_assert(ResNet18<10, 64, 96>::input == Extents<64, 96, 3>{} && ResNet18<10>::output == Extents<10>{} &&
              ResNet18<10>::parameter_count == 11'689'512 - 990 * 513);

namespace {

template <class Net>
constexpr Shape output_of(std::string_view name) {
    for (const LayerInfo& layer : Net::layers) {
        if (layer.name == name) return layer.output;
    }
    return {};
}

// The stride of a bottleneck is that of its 3 x 3 convolution; of the maximum, 112 to 56.
static_assert(output_of<ResNet50<>>("layer1.0.conv1") == Shape{56, 56, 64} &&
              output_of<ResNet50<>>("layer1.2.conv3") == Shape{56, 56, 256} &&
              output_of<ResNet50<>>("layer2.0.conv1") == Shape{56, 56, 128} &&
              output_of<ResNet50<>>("layer2.0.conv2") == Shape{28, 28, 128} &&
              output_of<ResNet50<>>("layer2.0.downsample.0") == Shape{28, 28, 512} &&
              output_of<ResNet50<>>("layer4.2.conv3") == Shape{7, 7, 2048});
static_assert(output_of<ResNet18<>>("layer4.0.conv1") == Shape{7, 7, 512} &&
              output_of<ResNet18<1000, 65, 33>>("layer4.0.conv1") == Shape{3, 2, 512});

/// "layer1.0.conv1.weight: 64 x 64 x 3 x 3", sorted: what torchvision's state_dict() has without num_batches_tracked.
class StateDict {
public:
    StateDict(std::array<std::int64_t, 4> blocks, bool bottleneck) {
        convolution("conv1", 64, 3, 7);
        norm("bn1", 64);
        std::int64_t in = 64;
        for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
            const std::int64_t planes = std::int64_t{64} << stage, out = bottleneck ? 4 * planes : planes;
            for (std::int64_t block = 0; block < blocks.at(stage); ++block) {
                const std::string prefix = text("layer", stage + 1, '.', block, '.');
                if (bottleneck) {
                    convolution(prefix + "conv1", planes, in, 1);
                    convolution(prefix + "conv2", planes, planes, 3);
                    convolution(prefix + "conv3", out, planes, 1);
                } else {
                    convolution(prefix + "conv1", planes, in, 3);
                    convolution(prefix + "conv2", planes, planes, 3);
                }
                norm(prefix + "bn1", planes);
                norm(prefix + "bn2", bottleneck ? planes : out);
                if (bottleneck) norm(prefix + "bn3", out);
                if (block == 0 && (stage > 0 || bottleneck)) {
                    convolution(prefix + "downsample.0", out, in, 1);
                    norm(prefix + "downsample.1", out);
                }
                in = out;
            }
        }
        add("fc.weight", {1000, in});
        add("fc.bias", {1000});
        std::ranges::sort(entries);
    }
    template <class Net>
    static std::vector<std::string> of_network() {
        std::vector<std::string> result;
        const impl::StoredTensors tensors = impl::stored_tensors(Net::layers);
        for (const auto* const list : {&tensors.parameters, &tensors.buffers}) {
            for (const impl::StoredTensor& tensor : *list)
                result.push_back(text(tensor.name, ": ", to_string(tensor.shape)));
        }
        std::ranges::sort(result);
        return result;
    }

    std::vector<std::string> entries;

private:
    void add(const std::string& name, const Shape& shape) { entries.push_back(text(name, ": ", to_string(shape))); }
    void convolution(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t kernel) {
        add(name + ".weight", {out, in, kernel, kernel});
    }
    void norm(const std::string& name, std::int64_t channels) {
        for (const char* const part : {".weight", ".bias", ".running_mean", ".running_var"})
            add(name + part, {channels});
    }
};

}  // namespace

TEST_CASE("torchvision's ResNets have the names and extents of torchvision's files") {
    const StateDict of_18({2, 2, 2, 2}, false), of_34({3, 4, 6, 3}, false), of_50({3, 4, 6, 3}, true);
    CHECK(of_18.entries == StateDict::of_network<ResNet18<>>());
    CHECK(of_34.entries == StateDict::of_network<ResNet34<>>());
    CHECK(of_50.entries == StateDict::of_network<ResNet50<>>());
    // As many as the files have, less a num_batches_tracked for each norm.
    CHECK(of_18.entries.size() == 122 - 20);
    CHECK(of_34.entries.size() == 218 - 36);
    CHECK(of_50.entries.size() == 320 - 53);
}

TEST_CASE("torchvision's ResNets start with torchvision's distributions") {
    const auto check = [](std::span<const LayerInfo> layers, double features) {
        // By the fan out.
        const std::vector<float> first = initial::values_of(layers, "conv1.weight"),
                                 weight = initial::values_of(layers, "fc.weight"),
                                 bias = initial::values_of(layers, "fc.bias");
        CHECK(initial::deviation(first) == doctest::Approx(std::sqrt(2.0 / (64 * 7 * 7))).epsilon(0.03));
        CHECK(initial::deviation(initial::values_of(layers, "layer2.0.conv2.weight")) ==
              doctest::Approx(std::sqrt(2.0 / (128 * 3 * 3))).epsilon(0.02));
        CHECK(std::ranges::max(first) > 3 * std::sqrt(2.0 / (64 * 7 * 7)));
        // Uniform by the fan in, the bias too.
        for (const std::vector<float>* const values : {&weight, &bias}) {
            CHECK(initial::deviation(*values) == doctest::Approx(std::sqrt(1 / (3 * features))).epsilon(0.06));
            CHECK(std::ranges::max(*values) < std::sqrt(1 / features) * 1.0001);
        }
        CHECK(initial::values_of(layers, "layer1.0.bn1.weight") == std::vector<float>(64, 1.0F));
        CHECK(initial::values_of(layers, "layer1.0.bn1.bias") == std::vector<float>(64, 0.0F));
        for (const LayerInfo& layer : layers) {
            if (layer.kind != LayerKind::convolution) continue;
            CHECK(layer.parameters.list[0].initializer == he_normal_fan_out());
        }
    };
    check(ResNet18<100>::layers, 512);
    check(ResNet34<100>::layers, 512);
    check(ResNet50<100>::layers, 2048);
    CHECK(initial::deviation(initial::values_of(ResNet50<100>::layers, "layer2.0.conv3.weight")) ==
          doctest::Approx(std::sqrt(2.0 / 512)).epsilon(0.02));
}
