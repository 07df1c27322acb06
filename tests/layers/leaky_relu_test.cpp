// SPDX-License-Identifier: Apache-2.0
//
// LeakyReLU<slope>: any extents, no parameters, its slope below 0 in both directions, and slopes that are rejected.
#include <cupola/layers/leaky_relu.hpp>

#include "../test.hpp"

#include <cupola/net/check_gradients.hpp>

#include "layer_run.hpp"

static_assert(LeakyReLU<0.1>::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64});
static_assert(LeakyReLU<>::output(Shape{384}).shape == Shape{384} && std::is_same_v<LeakyReLU<>, LeakyReLU<0.01>>);
static_assert(parameters_of<LeakyReLU<>>(Shape{384}).count == 0);
static_assert(!traits_of<LeakyReLU<>>().backward_reads_input && traits_of<LeakyReLU<>>().backward_reads_output);
static_assert(std::string_view(LeakyReLU<-0.1>::output(Shape{3}).error) ==
              "has a slope that is not a finite number of at least 0");
static_assert(!LeakyReLU<std::numeric_limits<double>::quiet_NaN()>::output(Shape{3}).error.empty());
static_assert(!LeakyReLU<std::numeric_limits<double>::infinity()>::output(Shape{3}).error.empty());
static_assert(LeakyReLU<0>::output(Shape{3}).error.empty());

namespace {

template <Number slope, class D>
void computes() {
    const auto [problem, outcome] = layer_run::run<LeakyReLU<slope>, D>({37, 5, 3}, 2, reference::fresh_seed());
    reference::Doubles y, dx;
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        const double by = problem.x[i] > 0 ? 1.0 : static_cast<double>(slope);
        y.push_back(by * static_cast<double>(problem.x[i]));
        dx.push_back(by * static_cast<double>(problem.dy[i]));
    }
    CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, dx) < operation_run::tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("LeakyReLU computes the operation of its template arguments", D, DevicesAndElements) {
    computes<0.25, D>();
    computes<0.01, D>();
    computes<0, D>();
    computes<2, D>();
}

TYPED_TEST_CASE("LeakyReLU propagates NaN and infinity, and has its slope at 0", D, DevicesAndElements) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    operation_run::Problem problem;
    problem.input = problem.output = {5};
    problem.x = {inf, -inf, 0.0F, -0.0F, std::numeric_limits<float>::quiet_NaN()};
    problem.dy = {1, 2, 4, 8, 1};
    const auto outcome =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<LeakyReLU<0.25>>(build); });
    CHECK(outcome.output[0] == inf);
    CHECK(outcome.output[1] == -inf);
    CHECK(outcome.output[2] == 0.0F);
    CHECK(outcome.output[3] == 0.0F);
    CHECK(std::isnan(outcome.output[4]));
    CHECK(outcome.input_gradient[0] == 1.0F);
    CHECK(outcome.input_gradient[1] == 0.5F);
    CHECK(outcome.input_gradient[2] == 1.0F);
    CHECK(outcome.input_gradient[3] == 2.0F);
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradient of LeakyReLU is its derivative") {
    const GradientCheck check = check_gradients<LeakyReLU<0.25>, Host>({4, 4, 3});
    CHECK_MESSAGE(check, check.report());
}
#endif
