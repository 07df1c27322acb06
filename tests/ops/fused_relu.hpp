// SPDX-License-Identifier: Apache-2.0
//
// Guarantees of an operation with a fused ReLU, for the tests of convolutions and linear layers. `run(problem)` returns the
// outcome of a Problem.
#pragma once

#include "../test.hpp"

#include "../reference/compare.hpp"
#include "../reference/relu.hpp"
#include "operation_run.hpp"

namespace fused_relu {

using operation_run::Outcome;
using operation_run::Problem;

inline void check_same_gradients(const Outcome& a, const Outcome& b) {
    CHECK(reference::same_bits(a.input_gradient, b.input_gradient));
    for (std::size_t i = 0; i < b.parameter_gradients.size(); ++i) {
        CHECK(reference::same_bits(a.parameter_gradients[i], b.parameter_gradients[i]));
    }
}

/// The fused operation has the bits of the operation and a ReLU after it, forward and backward.
template <class Run>
void check_bits(Problem problem, const Run& run) {
    problem.activation = cupola::Activation::none;
    Outcome apart = run(problem);
    problem.activation = cupola::Activation::relu;
    const Outcome fused = run(problem);
    for (float& value : apart.output) value = value < 0.0F ? 0.0F : value;
    CHECK(reference::same_bits_but_zeros_sign(fused.output, apart.output));

    // Backward of the two: the mask first, then the operation.
    problem.activation = cupola::Activation::none;
    problem.dy = reference::relu_mask(fused.output, problem.dy);
    check_same_gradients(fused, run(problem));
}

/// An operation whose ReLU mask the next operation applies does not apply it.
template <class Run>
void check_mask_applied_by_next(Problem problem, const Run& run) {
    const reference::Floats dy = problem.dy;
    problem.activation = cupola::Activation::relu;
    const Outcome itself = run(problem);
    problem.relu_mask_applied_by_next = true;
    problem.dy = reference::relu_mask(itself.output, dy);
    const Outcome masked = run(problem);
    CHECK(reference::same_bits(masked.output, itself.output));
    check_same_gradients(masked, itself);

    // A gradient without the mask is not masked.
    problem.dy = dy;
    const Outcome unmasked = run(problem);
    problem.activation = cupola::Activation::none;
    problem.relu_mask_applied_by_next = false;
    CHECK(reference::same_bits(unmasked.input_gradient, run(problem).input_gradient));
}

}  // namespace fused_relu
