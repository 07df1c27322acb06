// SPDX-License-Identifier: Apache-2.0
//
// Linear: extents, parameters and work are known from the type, and its options reach the operation; with per_position
// it is the same at each position.
#include "../test.hpp"

#include <cupola/layers/linear.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/linear.hpp"
#include "layer_run.hpp"

namespace {

using Local3 = Linear<384, weights(truncated_normal(0.04)), biases(constant(0.1))>;

static_assert(Local3::output(Shape{2304}).shape == Shape{384});
static_assert(multiply_adds_of<Local3>(Shape{2304}) == 2304 * 384);
constexpr Parameters parameters = parameters_of<Local3>(Shape{2304});
static_assert(parameters.count == 2);
static_assert(parameters.list[0].shape == Shape{384, 2304} && parameters.list[1].shape == Shape{384});
static_assert(std::string_view(parameters.list[0].name) == "weight" &&
              std::string_view(parameters.list[1].name) == "bias");
static_assert(parameters.list[0].fan_in == 2304 && parameters.list[0].fan_out == 384);
static_assert(parameters.list[0].initializer == truncated_normal(0.04) &&
              parameters.list[1].initializer == constant(0.1));
static_assert(parameters_of<Linear<10, no_bias>>(Shape{4}).count == 1);
static_assert(parameters_of<Linear<10>>(Shape{4}).list[0].initializer == he_normal());
static_assert(parameters_of<Linear<10>>(Shape{4}).list[1].initializer == constant(0.0));

static_assert(traits_of<Local3>().backward_reads_input && !traits_of<Local3>().backward_reads_output &&
              traits_of<Local3>().absorbs_relu && !traits_of<Local3>().absorbs_relu6);

static_assert(std::string_view(Linear<0>::output(Shape{4}).error) ==
              "has the number of features 0, which must be at least 1");
static_assert(std::string_view(Linear<10>::output(Shape{6, 6, 64}).error) ==
              "expects one extent, the features: put Flatten before it, or apply it per_position");

using PerPosition = Linear<10, per_position>;
static_assert(PerPosition::output(Shape{7, 5, 3}).shape == Shape{7, 5, 10} &&
              PerPosition::output(Shape{7, 3}).shape == Shape{7, 10} &&
              PerPosition::output(Shape{3}).shape == Shape{10});
static_assert(multiply_adds_of<PerPosition>(Shape{7, 5, 3}) == 7 * 5 * 3 * 10);
static_assert(parameters_of<PerPosition>(Shape{7, 5, 3}).list[0].shape == Shape{10, 3} &&
              parameters_of<PerPosition>(Shape{7, 5, 3}).list[0].fan_in == 3);
static_assert(traits_of<PerPosition>().absorbs_relu6);
static_assert(description_of<Linear<10, per_position, no_bias>>() == "Linear 10, per position, no bias");
static_assert(std::string_view(PerPosition::output(Shape{1, std::int64_t{1} << 30, 1}).error) ==
              "has an input of more than 2^29 rows or columns");
static_assert(std::string_view(Linear<10, depthwise>::output(Shape{3}).error) ==
              "accepts only the options per_position, no_bias, weights(...) and biases(...)");

/// Of all positions of the batch as the oracle's batch.
template <class L, class D>
void agrees(const Shape& input, std::int64_t batch, std::size_t out, bool bias) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, to_string(input), batch);
    const auto in = static_cast<std::size_t>(input.channels());
    const reference::Linear r{static_cast<std::size_t>(batch * input.size()) / in, in, out};
    const auto [problem, outcome] = layer_run::run<L, D>(input, batch, seed);
    REQUIRE(problem.parameters.size() == (bias ? 2 : 1));
    const reference::Floats b = bias ? problem.parameters[1] : reference::Floats{};
    CHECK(reference::distance(outcome.output, r.forward(problem.x, problem.parameters[0], b)) <
          operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, problem.parameters[0])) <
          operation_run::tolerance<D>);
    constexpr double of_weights =
        L::is_per_position ? operation_run::weight_gradient_tolerance<D> : reference::tolerance;
    CHECK(reference::distance(outcome.parameter_gradients[0], r.weight_gradient(problem.dy, problem.x)) < of_weights);
    if (bias)
        CHECK(reference::distance(outcome.parameter_gradients[1], r.bias_gradient(problem.dy)) < reference::tolerance);
}

}  // namespace

TYPED_TEST_CASE("Linear computes the operation of its template arguments", D, DevicesAndElements) {
    agrees<Linear<10>, D>({33}, 7, 10, true);
    agrees<Linear<13, no_bias>, D>({20}, 3, 13, false);
    agrees<PerPosition, D>({3, 5, 33}, 2, 10, true);
    agrees<PerPosition, D>({1, 1, 16}, 1, 10, true);
    agrees<PerPosition, D>({7, 3}, 3, 10, true);
    agrees<PerPosition, D>({2, 3, 2, 5}, 2, 10, true);
    agrees<PerPosition, D>({33}, 3, 10, true);
    agrees<Linear<32, per_position, no_bias>, D>({4, 2, 16}, 1, 32, false);
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradients of Linear per position are its derivatives") {
    const GradientCheck result = check_gradients<Linear<3, per_position>, Host>({4, 2, 5});
    CHECK_MESSAGE(result, result.report());
}
#endif
