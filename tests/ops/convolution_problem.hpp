// SPDX-License-Identifier: Apache-2.0
//
// The common part of the tests of convolutions: the operation's shape and a random problem, from the plain loops' shape.
#pragma once

#include <cupola/ops/convolution.hpp>

#include "../reference/convolution.hpp"
#include "operation_run.hpp"

namespace operation_run {

[[nodiscard]] inline cupola::ConvolutionShape convolution_shape(const reference::Convolution& r, bool bias) {
    const auto axis = [](const reference::Axis& a) {
        return cupola::WindowAxis{a.input, a.kernel, a.stride, a.output, a.pad_begin, a.pad_end, a.dilation};
    };
    return {axis(r.height), axis(r.width), r.in, r.out, bias, r.groups};
}

/// With numbers that are elements of `D`, the bias too: Cuda rounds it, and with one channel an output may cancel to less
/// than the error of that.
template <class D>
[[nodiscard]] Problem convolution_problem(const reference::Convolution& r, bool bias, std::uint64_t seed, int threads) {
    reference::Random random(seed);
    Problem problem;
    problem.input = {r.height.input, r.width.input, r.in};
    problem.output = {r.height.output, r.width.output, r.out};
    problem.batch = r.batch;
    problem.threads = threads;
    // A mean of 1, so that a gradient that is a single sum does not cancel to a figure below its own rounding.
    problem.x = rounded<D>(random.normal(r.input_size(), 1.0, 1.0));
    problem.dy = rounded<D>(random.normal(r.output_size(), 1.0, 1.0));
    problem.parameters = {rounded<D>(random.normal(r.weight_size()))};
    problem.gradients_before = {random.normal(r.weight_size())};
    if (bias) {
        problem.parameters.push_back(rounded<D>(random.normal(r.out)));
        problem.gradients_before.push_back(random.normal(r.out));
    }
    return problem;
}

}  // namespace operation_run
