// SPDX-License-Identifier: Apache-2.0
//
// The algorithm of --convolution, in a file of its own: unlike train.cpp it is compiled for speed.
#include <cupola/ops/host/winograd_convolution.hpp>

#include "devices.hpp"
#include "options.hpp"

namespace cifar10 {

namespace {

bool winograd_suits(const TrainOptions& options) { return options.precision == "float" || winograd_suits_bfloat16(); }

}  // namespace

void check_convolution(const TrainOptions& options) {
    require(winograd_suits(options) || options.convolution != "winograd",
            "--convolution winograd with --precision bf16 is for processors with AVX512_BF16 and without AMX, in a "
            "program that is compiled for AVX-512");
}

const ConvolutionAlgorithm* convolution_of(const TrainOptions& options) {
    return winograd_suits(options) && options.convolution != "direct" ? &winograd : nullptr;
}

}  // namespace cifar10
