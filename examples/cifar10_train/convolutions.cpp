// SPDX-License-Identifier: Apache-2.0
//
// The algorithms of --convolution, compiled once for all networks.
#include <cupola/host.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

#include "run_folder.hpp"

namespace cifar10 {

const ConvolutionAlgorithm* convolution_of(const TrainOptions& options) {
    require(options.convolution == "winograd" || options.convolution == "direct", "--convolution is winograd or direct, not ",
            options.convolution);
    return options.convolution == "winograd" && options.precision == "float" ? &winograd : nullptr;
}

}  // namespace cifar10
