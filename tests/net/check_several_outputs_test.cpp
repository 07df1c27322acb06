// SPDX-License-Identifier: Apache-2.0
//
// check_gradients of networks with several outputs: the gradient is that of the sum of the losses by their factors.
#include <cupola/loss/huber.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/net/check_gradients.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/net/named_values.hpp>

#include "../loss/squares.hpp"
#include "../throws_with.hpp"

namespace {

struct Heads : Sequential<Input<6>, Named<"body", Linear<7>>, Sigmoid, Keep<"f">, Named<"kinds", Linear<3>>,
                          Output<"kind">, From<"f">, Named<"boxes", Linear<2>>, Output<"box">> {};

template <class... L>
using With = LossCollection<Losses<L...>, WeightDecay<0.01, "kinds">>;

}  // namespace

TEST_CASE("a network with a loss per output has correct gradients, with factors and regularisers") {
    const GradientCheck one = check_gradients<Heads, Losses<At<"kind", CrossEntropy<3>>, At<"box", Huber<>>>, Host>();
    CHECK_MESSAGE(one, one.report());
    CHECK(one.tensors().size() == 7);
    const GradientCheck weighted = check_gradients<
        Heads, With<At<"box", Weighted<3, SumOfSquares<1>>>, At<"kind", Weighted<0.25, CrossEntropy<3>>>>, Host>(
        {.batch = 3});
    CHECK_MESSAGE(weighted, weighted.report());
    using One = Sequential<Input<6>, Linear<3>>;
    const GradientCheck single = check_gradients<One, Weighted<5, MeanSquaredError>, Host>();
    CHECK_MESSAGE(single, single.report());
}

TEST_CASE("a wrong loss at one output is found in the layers before it") {
    const GradientCheck check =
        check_gradients<Heads, Losses<At<"kind", CrossEntropy<3>>, At<"box", SumOfSquares<2>>>, Host>();
    CHECK_FALSE(check);
    CHECK(contains(check.report(), "the gradient of boxes.weight is 2 times what it should be"));
    CHECK(!contains(check.report(), "the gradient of kinds"));
    CHECK(contains(check.report(), "the gradient of body.weight"));
}

TEST_CASE("each output needs one loss") {
    CHECK(message_of<InvalidArgument>([] { static_cast<void>(check_gradients<Heads, SumOfSquares<1>, Host>()); }) ==
          "a check of gradients needs one loss per output, and the output kind has 0");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(
                  check_gradients<Heads, Losses<At<"kind", CrossEntropy<3>>, At<"boxes", SumOfSquares<1>>>, Host>());
          }) == "the network has no output \"boxes\"; its outputs are: kind, box");
}
