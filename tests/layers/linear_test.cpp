// SPDX-License-Identifier: Apache-2.0
//
// Linear: extents, parameters and work are known from the type, and its options reach the operation.
#include "../test.hpp"

#include <cupola/layers/linear.hpp>

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
              traits_of<Local3>().absorbs_relu);

static_assert(std::string_view(Linear<0>::output(Shape{4}).error) ==
              "has the number of features 0, which must be at least 1");
static_assert(std::string_view(Linear<10>::output(Shape{6, 6, 64}).error) ==
              "expects one extent, the features: put Flatten before it");

template <class L, class D>
void agrees(const reference::Linear& r, bool bias) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const auto [problem, outcome] =
        layer_run::run<L, D>({static_cast<std::int64_t>(r.in)}, static_cast<std::int64_t>(r.batch), seed);
    REQUIRE(problem.parameters.size() == (bias ? 2 : 1));
    const reference::Floats b = bias ? problem.parameters[1] : reference::Floats{};
    CHECK(reference::distance(outcome.output, r.forward(problem.x, problem.parameters[0], b)) <
          operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, problem.parameters[0])) <
          operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.parameter_gradients[0], r.weight_gradient(problem.dy, problem.x)) <
          reference::tolerance);
}

}  // namespace

TYPED_TEST_CASE("Linear computes the operation of its template arguments", D, DevicesAndElements) {
    agrees<Linear<10>, D>({7, 33, 10}, true);
    agrees<Linear<13, no_bias>, D>({3, 20, 13}, false);
}
