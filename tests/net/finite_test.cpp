// SPDX-License-Identifier: Apache-2.0
//
// Parameters and running statistics that a network cannot be run with are reported; the padding between them is ignored.
#include <cupola/net/finite.hpp>

#include "../test.hpp"

#include <cupola/layers.hpp>
#include <cupola/net/sequential.hpp>

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(),
                not_a_number = std::numeric_limits<float>::quiet_NaN();

struct Net : Sequential<Input<4, 4, 3>, Named<"conv1", Conv2d<2, 3>>, Named<"bn1", BatchNorm2d<>>, Flatten, Linear<5>> {
};

std::size_t offset_of(std::size_t layer, std::size_t parameter) {
    return static_cast<std::size_t>(Net::layers[layer].offsets[parameter]);
}

}  // namespace

TEST_CASE("a non-finite parameter is reported with its indices in the network's layout") {
    std::vector<float> arena(static_cast<std::size_t>(arena_elements(Net::layers)), 0.5F);
    CHECK(non_finite_parameter(Net::layers, arena) == "");
    arena.back() = infinity;  // padding
    CHECK(non_finite_parameter(Net::layers, arena) == "");
    const Shape& linear = Net::layers[3].parameters.list[0].shape;
    arena[offset_of(3, 0) + 7] = not_a_number;
    CHECK(non_finite_parameter(Net::layers, arena) ==
          text("3.weight is nan at [", 7 / linear[1], ", ", 7 % linear[1], "]"));
    arena[offset_of(0, 1) + 1] = -infinity;
    CHECK(non_finite_parameter(Net::layers, arena) == "conv1.bias is -inf at [1]");
}

TEST_CASE("a non-finite running statistic is reported, and a variance below 0 is invalid") {
    std::vector<float> buffers = initial_buffers(Net::layers);
    CHECK(invalid_buffer(Net::layers, buffers) == "");
    const auto mean = static_cast<std::size_t>(Net::layers[1].buffer_offsets[0]),
               variance = static_cast<std::size_t>(Net::layers[1].buffer_offsets[1]);
    buffers[mean + 1] = -3;
    buffers[variance] = 0;
    CHECK(invalid_buffer(Net::layers, buffers) == "");
    buffers[variance + 1] = -0.25F;
    CHECK(invalid_buffer(Net::layers, buffers) == "bn1.running_var is -0.25 at [1]");
    buffers[variance + 1] = infinity;
    CHECK(invalid_buffer(Net::layers, buffers) == "bn1.running_var is inf at [1]");
    buffers[mean] = not_a_number;
    CHECK(invalid_buffer(Net::layers, buffers) == "bn1.running_mean is nan at [0]");
}
