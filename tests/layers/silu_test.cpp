// SPDX-License-Identifier: Apache-2.0
//
// SiLU: any extents, no parameters, x times the logistic function and its gradient from the input.
#include <cupola/layers/silu.hpp>

#include "../test.hpp"

#include <cupola/net/check_gradients.hpp>

#include "layer_run.hpp"

static_assert(SiLU::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64});
static_assert(SiLU::output(Shape{384}).shape == Shape{384});
static_assert(parameters_of<SiLU>(Shape{384}).count == 0 && multiply_adds_of<SiLU>(Shape{384}) == 0);
static_assert(traits_of<SiLU>().backward_reads_input && !traits_of<SiLU>().backward_reads_output);

TYPED_TEST_CASE("SiLU computes the operation of its template arguments", D, DevicesAndElements) {
    const auto [problem, outcome] = layer_run::run<SiLU, D>({37, 5, 3}, 2, reference::fresh_seed());
    reference::Doubles y, dx;
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        const auto x = static_cast<double>(problem.x[i]);
        const double s = 1 / (1 + std::exp(-x));
        y.push_back(x * s);
        dx.push_back(static_cast<double>(problem.dy[i]) * (s + x * s * (1 - s)));
    }
    CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, dx) < operation_run::tolerance<D>);
}

TYPED_TEST_CASE("SiLU is x above and 0 below the range of exp, 0 at 0, and propagates a NaN", D, DevicesAndElements) {
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    operation_run::Problem problem;
    problem.input = problem.output = {5};
    problem.x = {1024.0F, -1024.0F, 0.0F, nan, -inf};
    problem.dy = {1, 1, 1, 1, 1};
    const auto outcome = operation_run::run<D>(problem, [](const auto& build) { return operation_of<SiLU>(build); });
    CHECK(outcome.output[0] == 1024.0F);
    CHECK(outcome.output[1] == 0.0F);
    CHECK(outcome.output[2] == 0.0F);
    CHECK(outcome.input_gradient[0] == 1.0F);
    CHECK(outcome.input_gradient[1] == 0.0F);
    CHECK(outcome.input_gradient[2] == 0.5F);
    for (const std::size_t i : {std::size_t{3}, std::size_t{4}}) {
        CHECK(std::isnan(outcome.output[i]));
        CHECK(std::isnan(outcome.input_gradient[i]));
    }
}

TYPED_TEST_CASE("the gradient of SiLU is its derivative", D, Devices) {
    const GradientCheck check = check_gradients<SiLU, D>({4, 4, 3});
    CHECK_MESSAGE(check, check.report());
}
