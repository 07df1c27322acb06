// SPDX-License-Identifier: Apache-2.0
//
// The algorithms of --convolution, compiled once for all networks.
#include <cupola/host.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

#include "on_host.hpp"

namespace cifar10 {

const ConvolutionAlgorithm* convolution_of(const TrainOptions& options) {
    const bool direct = options.convolution == "direct";
    require(direct || options.convolution.empty() || options.convolution == "winograd",
            "--convolution is winograd or direct, not ", options.convolution);
    require(direct || options.convolution.empty() || options.precision == "float",
            "--convolution winograd is for --precision float");
    return !direct && options.precision == "float" ? &winograd : nullptr;
}

}  // namespace cifar10
