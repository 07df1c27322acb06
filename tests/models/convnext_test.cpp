// SPDX-License-Identifier: Apache-2.0
//
// ConvNeXtTiny: its size, the names and extents of torchvision's file, and the rates of its stochastic depth.
#include <cupola/models/convnext.hpp>

#include "../test.hpp"

#include <cmath>
#include <string>

#include <cupola/io/impl/checkpoint_layout.hpp>

#include "initial_values.hpp"

// The number of parameters in torchvision's documentation.
static_assert(ConvNeXtTiny<>::parameter_count == 28'589'128 && ConvNeXtTiny<>::output == Extents<1000>{});
static_assert(ConvNeXtTiny<10, 64, 96>::input == Extents<64, 96, 3>{} &&
              ConvNeXtTiny<10>::parameter_count == 28'589'128 - 990 * 769);

TEST_CASE("ConvNeXtTiny has the names and extents of torchvision's file") {
    std::vector<std::string> expected, names;
    const auto add = [&](const std::string& name, const Shape& shape) {
        expected.push_back(text(name, ": ", to_string(shape)));
    };
    const auto layer = [&](const std::string& name, const Shape& weight) {
        add(name + ".weight", weight);
        add(name + ".bias", {weight[0]});
    };
    layer("features.0.0", {96, 3, 4, 4});
    layer("features.0.1", {96});
    std::int64_t part = 1, channels = 96;
    for (const std::int64_t blocks : {3, 3, 9, 3}) {
        for (std::int64_t i = 0; i < blocks; ++i) {
            const std::string block = text("features.", part, '.', i, '.');
            layer(block + "block.0", {channels, 1, 7, 7});
            layer(block + "block.2", {channels});
            layer(block + "block.3", {4 * channels, channels});
            layer(block + "block.5", {channels, 4 * channels});
            add(block + "layer_scale", {channels, 1, 1});
        }
        if (channels < 768) {
            layer(text("features.", part + 1, ".0"), {channels});
            layer(text("features.", part + 1, ".1"), {2 * channels, channels, 2, 2});
        }
        part += 2;
        channels *= 2;
    }
    layer("classifier.0", {768});
    layer("classifier.2", {1000, 768});

    const impl::StoredTensors tensors = impl::stored_tensors(ConvNeXtTiny<>::layers);
    for (const impl::StoredTensor& tensor : tensors.parameters)
        names.push_back(text(tensor.name, ": ", to_string(tensor.shape)));
    CHECK(names == expected);
    CHECK(tensors.buffers.empty());
}

TEST_CASE("ConvNeXtTiny starts with torchvision's distributions and rates") {
    const std::span<const LayerInfo> layers = ConvNeXtTiny<10>::layers;
    for (const char* name : {"features.5.8.block.0.weight", "features.7.2.block.3.weight", "classifier.2.weight"})
        CHECK(initial::deviation(initial::values_of(layers, name)) == doctest::Approx(0.02).epsilon(0.03));
    for (const float value : initial::values_of(layers, "features.1.0.layer_scale")) CHECK(value == 1e-6F);
    std::vector<std::string> rates;
    for (const LayerInfo& layer : layers) {
        const std::string_view description = layer.description;
        if (description.starts_with("DropPath")) rates.emplace_back(description);
    }
    REQUIRE(rates.size() == 18);
    for (std::size_t i = 0; i < rates.size(); ++i)
        CHECK(std::abs(std::stod(rates[i].substr(9)) - 0.1 * static_cast<double>(i) / 17) <=
              5e-7);  // it has 6 decimals
}
