// SPDX-License-Identifier: Apache-2.0
//
// Cifar10Net: the network of TensorFlow's CIFAR-10 tutorial, with its initial values, and its loss. Its input is 24 x
// 24 x 3 (models/tutorial_augmentation.hpp makes such samples from 32 x 32 images) and it has 1,068,298 parameters:
//
//   conv1, conv2     5 x 5, 64 channels, ReLU, each with a 3 x 3 max pool (stride 2) and local response normalisation
//   local3, local4   linear, 384 and 192 features, ReLU
//   softmax_linear   linear, 10 features
//
// The loss is the mean cross-entropy plus 0.004 / 2 times the sum of squares of the weights of local3 and local4.
#pragma once

#include <cupola/core/element_type.hpp>
#include <cupola/layers/conv2d.hpp>
#include <cupola/layers/flatten.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/layers/local_response_norm.hpp>
#include <cupola/layers/max_pool2d.hpp>
#include <cupola/layers/relu.hpp>
#include <cupola/loss/cross_entropy.hpp>
#include <cupola/loss/loss_collection.hpp>
#include <cupola/loss/weight_decay.hpp>
#include <cupola/net/sequential.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

inline constexpr auto tutorial_conv = weights(truncated_normal(0.05));
inline constexpr auto tutorial_local = weights(truncated_normal(0.04));
inline constexpr auto tutorial_bias = biases(constant(0.1));

}  // namespace impl

// clang-format off
struct Cifar10Net : Sequential<Input<24, 24, 3>,
    Named<"conv1", Conv2d<64, 5, impl::tutorial_conv>>, ReLU, MaxPool2d<3, 2>, LocalResponseNorm<4>,
    Named<"conv2", Conv2d<64, 5, impl::tutorial_conv, impl::tutorial_bias>>, ReLU, LocalResponseNorm<4>,
    MaxPool2d<3, 2>, Flatten,
    Named<"local3", Linear<384, impl::tutorial_local, impl::tutorial_bias>>, ReLU,
    Named<"local4", Linear<192, impl::tutorial_local, impl::tutorial_bias>>, ReLU,
    Named<"softmax_linear", Linear<10, weights(truncated_normal(1.0 / 192))>>> {};
// clang-format on

/// The same network with activations in bfloat16, and parameters and sums in float.
struct Cifar10NetBf16 : InPrecision<MixedBFloat16, Cifar10Net> {};

using Cifar10Loss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "local3", "local4">>;

}}  // namespace cupola::CUPOLA_ABI
