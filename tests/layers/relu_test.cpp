// SPDX-License-Identifier: Apache-2.0
//
// ReLU: any extents, no parameters, and the traits by which it is fused into the layer before it.
#include "../test.hpp"

#include <cupola/layers/relu.hpp>

#include "../reference/relu.hpp"
#include "layer_run.hpp"

static_assert(ReLU::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64});
static_assert(ReLU::output(Shape{384}).shape == Shape{384});
static_assert(parameters_of<ReLU>(Shape{384}).count == 0 && multiply_adds_of<ReLU>(Shape{384}) == 0);
static_assert(kind_of<ReLU>() == LayerKind::activation && ReLU::activation == Activation::relu);
static_assert(!traits_of<ReLU>().backward_reads_input && traits_of<ReLU>().backward_reads_output);
static_assert(!traits_of<ReLU>().absorbs_relu);

TYPED_TEST_CASE("ReLU computes the operation of its template arguments", D, DevicesAndElements) {
    const auto [problem, outcome] = layer_run::run<ReLU, D>({7, 5, 3}, 2, reference::fresh_seed());
    CHECK(reference::distance(outcome.output, reference::relu(reference::widen(problem.x))) == 0);
    CHECK(reference::same_bits(outcome.input_gradient, reference::relu_mask(outcome.output, problem.dy)));
}
