// SPDX-License-Identifier: Apache-2.0
//
// check_gradients of networks with several outputs: the gradient is that of the sum of the losses by their factors.
#include <cupola/net/check_gradients.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include "../throws_with.hpp"

using namespace cupola;

namespace {

struct Heads : Sequential<Input<6>, Named<"body", Linear<7>>, Sigmoid, Keep<"f">, Named<"kinds", Linear<3>>,
                          Output<"kind">, From<"f">, Named<"boxes", Linear<2>>, Output<"box">> {};

/// Half the mean of the squares; the gradient is `too_large` times what it should be.
template <int too_large>
struct Squares {
    static constexpr std::string_view name = "squares";
    using Target = float;
    static constexpr Shape target(const Shape& output) { return output; }
    struct Operation {
        std::int64_t elements;
        LossResult forward(HostContext&, const float* outputs, const float* targets, std::int64_t batch,
                           float* gradient) const {
            LossResult result{.sum = 0, .correct = 0, .weight = static_cast<double>(batch), .predictions = 0};
            for (std::int64_t i = 0; i < batch * elements; ++i) {
                const float difference = outputs[i] - targets[i];
                result.sum += 0.5 * static_cast<double>(difference * difference);
                if (gradient != nullptr) gradient[i] = too_large * difference / static_cast<float>(batch);
            }
            return result;
        }
    };
    template <class Device>
    [[nodiscard]] Operation operation(const Shape& output) const {
        return {output.size()};
    }
};

template <class... L>
using With = LossCollection<Losses<L...>, WeightDecay<0.01, "kinds">>;

}  // namespace

TEST_CASE("a network with a loss per output has correct gradients, with factors and regularisers") {
    const GradientCheck one = check_gradients<Heads, Losses<At<"kind", CrossEntropy<3>>, At<"box", Huber<>>>, Host>();
    CHECK_MESSAGE(one, one.report());
    CHECK(one.tensors().size() == 7);
    const GradientCheck weighted =
        check_gradients<Heads, With<At<"box", Weighted<3, Squares<1>>>, At<"kind", Weighted<0.25, CrossEntropy<3>>>>,
                        Host>({.batch = 3});
    CHECK_MESSAGE(weighted, weighted.report());
    using One = Sequential<Input<6>, Linear<3>>;
    const GradientCheck single = check_gradients<One, Weighted<5, MeanSquaredError>, Host>();
    CHECK_MESSAGE(single, single.report());
}

TEST_CASE("a wrong loss at one output is found in the layers before it") {
    const GradientCheck check =
        check_gradients<Heads, Losses<At<"kind", CrossEntropy<3>>, At<"box", Squares<2>>>, Host>();
    CHECK_FALSE(check);
    CHECK(contains(check.report(), "the gradient of boxes.weight is 2 times what it should be"));
    CHECK(!contains(check.report(), "the gradient of kinds"));
    CHECK(contains(check.report(), "the gradient of body.weight"));
}

TEST_CASE("each output needs one loss") {
    CHECK(message_of<InvalidArgument>([] { static_cast<void>(check_gradients<Heads, Squares<1>, Host>()); }) ==
          "a check of gradients needs one loss per output, and the output kind has 0");
    CHECK(message_of<InvalidArgument>([] {
              static_cast<void>(
                  check_gradients<Heads, Losses<At<"kind", CrossEntropy<3>>, At<"boxes", Squares<1>>>, Host>());
          }) == "the network has no output \"boxes\"; its outputs are: kind, box");
}
