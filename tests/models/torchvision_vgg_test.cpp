// SPDX-License-Identifier: Apache-2.0
//
// VGG16: its size, and the names and extents of torchvision's file.
#include <cupola/models/torchvision_vgg.hpp>

#include "../test.hpp"

#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/file_parts.hpp>

#include "initial_values.hpp"

// The number of parameters in torchvision's documentation.
static_assert(VGG16<>::parameter_count == 138'357'544 && VGG16<>::output == Extents<1000>{} &&
              VGG16<>::input == Extents<224, 224, 3>{} && VGG16<>::buffer_elements == 0);
static_assert(VGG16<10>::parameter_count == 138'357'544 - 990 * 4097 && VGG16<10>::output == Extents<10>{});

// torchvision's average to 7 x 7 is not there where it is the identity.
constexpr std::int64_t averages_of_vgg(std::span<const LayerInfo> layers) {
    std::int64_t count = 0;
    for (const LayerInfo& layer : layers) count += layer.description == "AdaptiveAvgPool2d 7 x 7" ? 1 : 0;
    return count;
}
static_assert(VGG16<10>::layer_count == 39 && averages_of_vgg(VGG16<10>::layers) == 0 &&
              averages_of_vgg(VGG16<10, 250, 231>::layers) == 0);
static_assert(VGG16<10, 96, 224>::layer_count == 40 && averages_of_vgg(VGG16<10, 96, 224>::layers) == 1);
static_assert(VGG16<10, 96, 224>::parameter_count == VGG16<10>::parameter_count &&
              VGG16<10, 32>::output == Extents<10>{} && VGG16<10, 96, 224>::preprocessing.fit.height == 96);

TEST_CASE("VGG16 has the names and extents of torchvision's file, and its dropouts") {
    // torchvision's configuration D: a number is a convolution and a ReLU of a Sequential, 0 a maximum.
    std::vector<std::string> expected;
    const auto add = [&](std::string_view part, std::int64_t number, const Shape& weight) {
        expected.push_back(text(part, number, ".weight: ", to_string(weight)));
        expected.push_back(text(part, number, ".bias: ", weight[0]));
    };
    std::int64_t number = 0, in = 3;
    for (const std::int64_t out : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
        if (out > 0) add("features.", number, {out, in, 3, 3});
        number += out > 0 ? 2 : 1;
        in = out > 0 ? out : in;
    }
    add("classifier.", 0, {4096, 512 * 7 * 7});
    add("classifier.", 3, {4096, 4096});
    add("classifier.", 6, {1000, 4096});

    std::vector<std::string> names;
    for (const impl::StoredTensor& tensor : impl::stored_tensors(VGG16<>::layers).parameters)
        names.push_back(text(tensor.name, ": ", to_string(tensor.shape)));
    CHECK(names == expected);
    CHECK(names.size() == 32);

    std::vector<std::string_view> classifier;
    bool behind_flatten = false;
    for (const LayerInfo& layer : VGG16<>::layers) {
        if (behind_flatten) classifier.push_back(layer.description);
        behind_flatten = behind_flatten || layer.output == Shape{512 * 7 * 7};
    }
    CHECK(classifier == std::vector<std::string_view>{"Linear 4096", "ReLU", "Dropout 0.5", "Linear 4096", "ReLU",
                                                      "Dropout 0.5", "Linear 1000"});
}

TEST_CASE("VGG16 starts with torchvision's distributions") {
    const std::span<const LayerInfo> layers = VGG16<10>::layers;
    CHECK(initial::deviation(initial::values_of(layers, "features.5.weight")) ==
          doctest::Approx(std::sqrt(2.0 / (128 * 3 * 3))).epsilon(0.02));
    CHECK(initial::deviation(initial::values_of(layers, "classifier.6.weight")) == doctest::Approx(0.01).epsilon(0.02));
    for (const LayerInfo& layer : layers) {
        if (layer.parameters.count == 0) continue;
        const bool convolution = layer.kind == LayerKind::convolution;
        CHECK(layer.parameters.list[0].initializer == (convolution ? he_normal_fan_out() : normal(0.01)));
        CHECK(layer.parameters.list[1].initializer == constant(0.0));
    }
}

TEST_CASE("timm's file of VGG16 has convolutions in the place of the classifier, under other names") {
    const impl::StoredTensors tensors = impl::stored_tensors(VGG16<>::layers);
    const NameTable names = timm_vgg_names();
    std::vector<std::string> found;
    std::size_t same = 0;
    for (const impl::FilePart& part : impl::file_parts(tensors, names)) {
        CHECK(part.in_order);
        if (part.name == part.tensor->name) {
            same += part.name.starts_with("features.") ? 1 : 0;
        } else {
            found.push_back(text(part.tensor->name, ": ", part.name, ' ', impl::extents_text(part.extents)));
        }
    }
    CHECK(same == 26);
    // The state dict of timm.create_model("vgg16").
    CHECK(found == std::vector<std::string>{"classifier.0.weight: pre_logits.fc1.weight 4096 x 512 x 7 x 7",
                                            "classifier.0.bias: pre_logits.fc1.bias 4096",
                                            "classifier.3.weight: pre_logits.fc2.weight 4096 x 4096 x 1 x 1",
                                            "classifier.3.bias: pre_logits.fc2.bias 4096",
                                            "classifier.6.weight: head.fc.weight 1000 x 4096",
                                            "classifier.6.bias: head.fc.bias 1000"});
}
