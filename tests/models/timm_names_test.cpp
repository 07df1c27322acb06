// SPDX-License-Identifier: Apache-2.0
//
// The tables of timm's EfficientNets and of its ConvNeXt give the names of timm's files.
#include <cupola/models/convnext.hpp>
#include <cupola/models/efficientnet_lite0.hpp>
#include <cupola/models/mobilenet_v2.hpp>

#include "../test.hpp"

#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/file_parts.hpp>

namespace {

/// The state dict of timm.create_model() of a network with these numbers of blocks: the parameters and then the running
/// statistics, each in timm's order.
std::vector<std::string> names_in_timm(std::initializer_list<int> blocks) {
    std::vector<std::string> names, statistics;
    const auto add = [&](const std::string& convolution, const std::string& norm) {
        names.insert(names.end(), {convolution + ".weight", norm + ".weight", norm + ".bias"});
        statistics.insert(statistics.end(), {norm + ".running_mean", norm + ".running_var"});
    };
    add("conv_stem", "bn1");
    int stage = 0;
    for (const int count : blocks) {
        for (int block = 0; block < count; ++block) {
            const std::string of = text("blocks.", stage, '.', block, '.');
            if (stage == 0) {
                add(of + "conv_dw", of + "bn1");
                add(of + "conv_pw", of + "bn2");
            } else {
                add(of + "conv_pw", of + "bn1");
                add(of + "conv_dw", of + "bn2");
                add(of + "conv_pwl", of + "bn3");
            }
        }
        ++stage;
    }
    add("conv_head", "bn2");
    names.insert(names.end(), {"classifier.weight", "classifier.bias"});
    names.insert(names.end(), statistics.begin(), statistics.end());
    return names;
}

/// What a network's parameters and running statistics are in a file with this table.
std::vector<std::string> names_in_file(std::span<const LayerInfo> layers, const NameTable& table) {
    const impl::StoredTensors tensors = impl::stored_tensors(layers);
    std::vector<std::string> names;
    for (const impl::FilePart& part : impl::file_parts(tensors, table)) {
        CHECK(part.in_order);
        names.push_back(part.name);
    }
    return names;
}

}  // namespace

TEST_CASE("timm's files of MobileNetV2 have the same tensors under other names") {
    CHECK(names_in_file(MobileNetV2<>::layers, timm_mobilenet_v2_names()) == names_in_timm({1, 2, 3, 4, 3, 3, 1}));
}

TEST_CASE("timm's files of EfficientNetLite0 have the same tensors under other names") {
    CHECK(names_in_file(EfficientNetLite0<>::layers, timm_efficientnet_lite0_names()) ==
          names_in_timm({1, 2, 2, 3, 3, 4, 1}));
}

TEST_CASE("timm's files of ConvNeXtTiny have the same tensors under other names") {
    std::vector<std::string> names;
    const auto add = [&](const std::string& layer) { names.insert(names.end(), {layer + ".weight", layer + ".bias"}); };
    add("stem.0");
    add("stem.1");
    int stage = 0;
    for (const int blocks : {3, 3, 9, 3}) {
        const std::string of_stage = text("stages.", stage, '.');
        for (int i = 0; stage > 0 && i < 2; ++i) add(text(of_stage, "downsample.", i));
        for (int block = 0; block < blocks; ++block) {
            const std::string of = text(of_stage, "blocks.", block, '.');
            for (const char* const layer : {"conv_dw", "norm", "mlp.fc1", "mlp.fc2"}) add(of + layer);
            names.push_back(of + "gamma");
        }
        ++stage;
    }
    add("head.norm");
    add("head.fc");
    CHECK(names_in_file(ConvNeXtTiny<>::layers, timm_convnext_names()) == names);
    const impl::StoredTensors tensors = impl::stored_tensors(ConvNeXtTiny<>::layers);
    for (const impl::FilePart& part : impl::file_parts(tensors, timm_convnext_names())) {
        if (part.name == "stages.2.blocks.8.gamma") CHECK(part.extents == std::vector<std::int64_t>{384});
    }
}
