// SPDX-License-Identifier: Apache-2.0
//
// Small networks whose checkpoints the tests write, read and damage, and a state in which every value is different.
#pragma once

#include <cupola/io/checkpoint.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/net/sequential.hpp>

#include "../standard.hpp"

namespace io_tests {

using namespace cupola;

/// Flattened from 2 x 2 x 3, with a layer between that keeps the shape.
struct Net : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<3, 1>>, ReLU, Flatten, ReLU, Named<"fc", Linear<2>>, ReLU,
                        Linear<2, no_bias>> {};
struct WiderNet : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<4, 1>>, ReLU, Flatten, ReLU, Named<"fc", Linear<2>>,
                             ReLU, Linear<2, no_bias>> {};
struct ShorterNet
    : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<3, 1>>, ReLU, Flatten, ReLU, Named<"fc", Linear<2>>> {};
struct OtherNet : Sequential<Input<2, 2, 2>, Named<"conv", Conv2d<3, 1>>, ReLU, Flatten, ReLU, Named<"fc", Linear<2>>,
                             ReLU, Linear<2, no_bias>> {};

/// Values first, first + 1, ... in the arena of the network, with zeros between the parameters.
template <class N>
std::vector<float> arena(float first) {
    std::vector<float> values(static_cast<std::size_t>(N::parameter_elements));
    for (const LayerInfo& layer : N::layers) {
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            for (std::int64_t i = 0; i < layer.parameters.list[p].shape.size(); ++i) {
                values[static_cast<std::size_t>(layer.offsets[p] + i)] = first++;
            }
        }
    }
    return values;
}

template <class N = Net>
Checkpoint small_checkpoint(std::int64_t step = 1000) {
    Checkpoint checkpoint;
    checkpoint.state.step = step;
    checkpoint.state.parameters = arena<N>(1);
    checkpoint.state.averages = arena<N>(1001);
    checkpoint.state.optimizer = {{"exp_avg", arena<N>(2001)}, {"exp_avg_sq", arena<N>(3001)}};
    checkpoint.info.set("seed", "1");
    checkpoint.info.set("schedule", "0.1, decayed by 0.1 after 350 epochs");
    return checkpoint;
}

}  // namespace io_tests
