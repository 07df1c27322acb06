// SPDX-License-Identifier: Apache-2.0
//
// Sigmoid: any extents, no parameters, the logistic function and its gradient from the output.
#include <cupola/layers/sigmoid.hpp>

#include "../test.hpp"

#include <cupola/net/check_gradients.hpp>

#include "layer_run.hpp"

static_assert(Sigmoid::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64});
static_assert(Sigmoid::output(Shape{384}).shape == Shape{384});
static_assert(parameters_of<Sigmoid>(Shape{384}).count == 0 && multiply_adds_of<Sigmoid>(Shape{384}) == 0);
static_assert(!traits_of<Sigmoid>().backward_reads_input && traits_of<Sigmoid>().backward_reads_output);

TYPED_TEST_CASE("Sigmoid computes the operation of its template arguments", D, DevicesAndElements) {
    const auto [problem, outcome] = layer_run::run<Sigmoid, D>({37, 5, 3}, 2, reference::fresh_seed());
    reference::Doubles y, dx;
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        const auto out = static_cast<double>(outcome.output[i]);
        y.push_back(1 / (1 + std::exp(-static_cast<double>(problem.x[i]))));
        dx.push_back(static_cast<double>(problem.dy[i]) * out * (1 - out));
    }
    CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, dx) < operation_run::tolerance<D>);
}

TYPED_TEST_CASE("Sigmoid tends to 0 and 1, is 1/2 at 0, and propagates a NaN", D, DevicesAndElements) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    operation_run::Problem problem;
    problem.input = problem.output = {6};
    problem.x = {inf, -inf, 1000.0F, -1000.0F, 0.0F, std::numeric_limits<float>::quiet_NaN()};
    problem.dy = {1, 1, 1, 1, 1, 1};
    const auto outcome = operation_run::run<D>(problem, [](const auto& build) { return operation_of<Sigmoid>(build); });
    for (std::size_t i = 0; i < 5; ++i) {
        CHECK(outcome.output[i] == (i == 4 ? 0.5F : i % 2 == 0 ? 1.0F : 0.0F));
        CHECK(outcome.input_gradient[i] == (i == 4 ? 0.25F : 0.0F));
    }
    CHECK(std::isnan(outcome.output[5]));
    CHECK(std::isnan(outcome.input_gradient[5]));
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradient of Sigmoid is its derivative") {
    const GradientCheck check = check_gradients<Sigmoid, Host>({4, 4, 3});
    CHECK_MESSAGE(check, check.report());
}
#endif
