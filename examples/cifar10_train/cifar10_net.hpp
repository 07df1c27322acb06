// SPDX-License-Identifier: Apache-2.0
//
// The network of TensorFlow's CIFAR-10 tutorial as a type, with its initial values, and its loss.
#pragma once

#include <cupola/cupola.hpp>

namespace cifar10 {

using namespace cupola;

inline constexpr auto small = weights(truncated_normal(0.05));
inline constexpr auto medium = weights(truncated_normal(0.04));
inline constexpr auto tenth = biases(constant(0.1));

// clang-format off
struct Cifar10Net : Sequential<Input<24, 24, 3>,
    Named<"conv1", Conv2d<64, 5, small>>, ReLU, MaxPool2d<3, 2>, LocalResponseNorm<4>,
    Named<"conv2", Conv2d<64, 5, small, tenth>>, ReLU, LocalResponseNorm<4>, MaxPool2d<3, 2>,
    Flatten,
    Named<"local3", Linear<384, medium, tenth>>, ReLU,
    Named<"local4", Linear<192, medium, tenth>>, ReLU,
    Named<"softmax_linear", Linear<10, weights(truncated_normal(1.0 / 192))>>> {};
// clang-format on

static_assert(Cifar10Net::output_shape.size() == 10 && Cifar10Net::parameter_count == 1'068'298);

struct Cifar10NetBf16 : InPrecision<MixedBFloat16, Cifar10Net> {};

using Cifar10Loss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "local3", "local4">>;

}  // namespace cifar10
