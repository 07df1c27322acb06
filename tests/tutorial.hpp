// SPDX-License-Identifier: Apache-2.0
//
// The tutorial's network and loss as in the example, and the common parts of the tests of training: the sample's images,
// and the norm by which arenas are compared.
#pragma once

#include <cupola/cupola.hpp>
#include <cupola/data/open.hpp>
#include <cupola/host.hpp>
#include <cupola/models/cifar10_net.hpp>

#include "sanitized.hpp"
#include "standard.hpp"

namespace tutorial {

using namespace cupola;
using Net = Cifar10Net;
using Loss = Cifar10Loss;
template <class Averaging = ConcatMean, class Optimizer = Sgd>
using Training = DataParallel<Net, Loss, Optimizer, Averaging, Host>;

/// A network of the tutorial's kinds of layer that a sanitizer gets through in seconds.
struct SmallNet : Sequential<Input<24, 24, 3>, Named<"conv1", Conv2d<8, 5, stride(2)>>, ReLU, MaxPool2d<3, 2>,
                             LocalResponseNorm<2>, Named<"conv2", Conv2d<8, 3>>, ReLU, Flatten,
                             Named<"local3", Linear<24>>, ReLU, Named<"softmax_linear", Linear<10>>> {};
using SmallLoss = LossCollection<CrossEntropy<10>, WeightDecay<0.004, "local3">>;
template <class Averaging = ConcatMean, class Optimizer = Sgd>
using SmallTraining = DataParallel<SmallNet, SmallLoss, Optimizer, Averaging, Host>;

/// The network that a test of whole trainings takes: under a sanitizer the small one, since the tutorial's takes
/// minutes.
using AnyNet = std::conditional_t<sanitized, SmallNet, Net>;
using AnyTraining = std::conditional_t<sanitized, SmallTraining<>, Training<>>;

inline const ImageData& sample() {
    static const ImageData data = open_image_data(CUPOLA_SAMPLE_DATA, 2);
    return data;
}

/// Norm of the difference over norm of the reference.
template <class A, class B>
double difference(const A& values, const B& reference) {
    double above = 0, below = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        const double d = static_cast<double>(values[i]) - static_cast<double>(reference[i]);
        above += d * d;
        below += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
    }
    return std::sqrt(above / below);
}

}  // namespace tutorial
