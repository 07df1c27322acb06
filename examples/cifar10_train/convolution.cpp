// SPDX-License-Identifier: Apache-2.0
//
// The algorithm of --convolution, in a file of its own: unlike train.cpp it is compiled for speed.
#include <cupola/ops/host/winograd_convolution.hpp>

#include "devices.hpp"
#include "options.hpp"

namespace cifar10 {

const ConvolutionAlgorithm* convolution_of(const TrainOptions& options) {
    return options.convolution != "direct" && options.precision == "float" ? &winograd : nullptr;
}

}  // namespace cifar10
