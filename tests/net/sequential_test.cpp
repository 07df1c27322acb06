// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/modules.hpp, cupola/net/summary.hpp, cupola/net/table.hpp
#include <cupola/net/sequential.hpp>

#include "../test.hpp"

#include <cupola/net/summary.hpp>

#include "tutorial.hpp"

static_assert(tutorial::Net::input == Extents<24, 24, 3>{});
static_assert(tutorial::Net::output == Extents<10>{});
static_assert(tutorial::Net::parameter_count == 1'068'298);
// Each parameter starts on a cache line: the ten biases of softmax_linear take sixteen places.
static_assert(tutorial::Net::parameter_elements == 1'068'304);
static_assert(tutorial::Net::layer_count == 14);
// conv1's output, 24 x 24 x 64 floats per image, and norm1's; conv1's gradient takes the same place, for pooling masks
// it.
static_assert(activation_bytes<tutorial::Net>(128) == 23'592'960);
static_assert(activation_bytes<tutorial::Net>(128, false) == 23'592'960);
static_assert(activation_bytes<tutorial::Net>(256) == 2 * activation_bytes<tutorial::Net>(128));
static_assert(activation_bytes<Unfused<tutorial::Net>>(128) > activation_bytes<tutorial::Net>(128));

struct Deep : Sequential<Input<4, 4, 2>, Conv2d<2, 3>, Dropout<0.5>, AvgPool2d<2>, Flatten, Linear<3>> {};
static_assert(Deep::output == Extents<3>{} && Deep::parameter_count == 2 * 9 * 2 + 2 + 8 * 3 + 3);
static_assert(Network<Deep> && !Network<int> && !Network<Linear<3>>);

TEST_CASE("layers carry names, extents and offsets in the order of the list") {
    const auto layers = tutorial::Net::layers;
    CHECK(layers[0].name == "conv1");
    CHECK(layers[0].type == "Conv2d<64, 5>");
    CHECK(layers[0].output == Shape{24, 24, 64});
    CHECK(layers[2].output == Shape{12, 12, 64});
    CHECK(layers[7].output == Shape{6, 6, 64});
    CHECK(layers[8].output == Shape{2304});
    CHECK(layers[9].parameters.list[0].shape == Shape{384, 2304});
    CHECK(parameter_name(layers, 13, 1) == "softmax_linear.bias");
    CHECK(parameter_name(Deep::layers, 0, 0) == "0.weight");
    std::int64_t next = 0;
    for (const LayerInfo& layer : layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            CHECK(layer.offsets[p] == next);
            next += arena_extent(layer.parameters.list[p].shape.size());
        }
    }
    CHECK(next == tutorial::Net::parameter_elements);
}

TEST_CASE("the summary lists every layer once, and its totals are the sums") {
    const std::string table = summary<tutorial::Net>(128);
    for (const char* part : {"conv1", "+ ReLU", "MaxPool2d 3 x 3, stride 2", "+ LocalResponseNorm, radius 4",
                             "+ MaxPool2d 3 x 3, stride 2", "Flatten", "view", "softmax_linear", "1,068,298",
                             "15,399,552", "23.6 MB", "2,495,232"}) {
        CAPTURE(part);
        CHECK(table.find(part) != std::string::npos);
    }
    CHECK(summary<Unfused<tutorial::Net>>(128).find("+ ReLU") == std::string::npos);
}
