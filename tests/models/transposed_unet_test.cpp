// SPDX-License-Identifier: Apache-2.0
//
// TransposedUNet: its size, the names and extents of its files, and its gradients. tests/interop/checkpoint.py compares its
// outputs with PyTorch's.
#include <cupola/models/transposed_unet.hpp>

#include "../test.hpp"

#include <string>

#include <cupola/host.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/net/check_gradients.hpp>

// The number of parameters of PyTorch's network with 3 channels and 2 classes.
using Large = TransposedUNet<64, 96, 3, 2>;
static_assert(Large::parameter_count == 31'037'698 && Large::output_shape == Shape{64, 96, 2});

TEST_CASE("TransposedUNet has the names and extents of PyTorch's file") {
    std::vector<std::string> expected, names;
    const auto add = [&](const std::string& name, const Shape& shape) {
        expected.push_back(text(name, ": ", to_string(shape)));
    };
    const auto twice = [&](const std::string& block, std::int64_t in, std::int64_t out) {
        for (int i = 0; i < 2; ++i) {
            add(text(block, ".double_conv.", 3 * i, ".weight"), {out, i == 0 ? in : out, 3, 3});
            for (const char* part : {".weight", ".bias"}) add(text(block, ".double_conv.", 3 * i + 1, part), {out});
        }
    };
    twice("inc", 3, 64);
    for (int i = 1; i <= 4; ++i) twice(text("down", i, ".maxpool_conv.1"), 32 << i, 64 << i);
    for (int i = 1; i <= 4; ++i) {
        const std::int64_t channels = 1024 >> i;
        add(text("up", i, ".up.weight"), {2 * channels, channels, 2, 2});
        add(text("up", i, ".up.bias"), {channels});
        twice(text("up", i, ".conv"), 2 * channels, channels);
    }
    add("outc.conv.weight", {2, 64, 1, 1});
    add("outc.conv.bias", {2});

    const impl::StoredTensors tensors = impl::stored_tensors(Large::layers);
    for (const impl::StoredTensor& tensor : tensors.parameters)
        names.push_back(text(tensor.name, ": ", to_string(tensor.shape)));
    CHECK(names == expected);
}

TEST_CASE("the gradients of TransposedUNet are its derivatives") {
    struct Net : TransposedUNet<8, 12, 2, 3, 4, 1> {};
    const GradientCheck check = check_gradients<Net, CrossEntropy<3>, Host>({.batch = 3});
    CHECK_MESSAGE(check, check.report());
}
