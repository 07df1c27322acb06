// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a residual block: Add masks once and hands its gradient to both inputs, wherever they lie; Fork adds
// the gradients of its readers.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>
#include <cupola/ops/onednn/residual.hpp>

#include "../devices.hpp"
#include "../reference/compare.hpp"

using namespace cupola;
using reference::Floats;

namespace {

constexpr Shape shape{3, 5, 7};
constexpr std::int64_t batch = 50, count = batch * 3 * 5 * 7;  // more than a block
const Floats nothing(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());

template <class Op>
struct Made {
    HostContext context{0, {.threads = 2}};
    Op op;
    explicit Made(Activation activation = Activation::none, bool masked_by_next = false)
        : op(Site<Host>{.context = context, .batch = batch, .input = shape, .output = shape, .activation = activation, .masked_by_next = masked_by_next}) {}
};

}  // namespace

TEST_CASE("a sum is a sum, cut at zero where a ReLU is inside, and a NaN stays one") {
    reference::Random random(reference::fresh_seed());
    Floats a = random.normal(count), b = random.normal(count);
    b[11] = std::nanf("");
    for (const Activation activation : {Activation::none, Activation::relu}) {
        Made<ops::Add<Host, float>> add(activation);
        Floats y = nothing;
        Pass<Host> pass{.context = add.context};
        pass.input = a.data(), pass.second_input = b.data(), pass.output = y.data();
        add.op.forward(pass);
        for (std::size_t i = 0; i < y.size(); ++i) {
            const float sum = a[i] + b[i];
            if (i == 11) {
                REQUIRE(std::isnan(y[i]));
            } else {
                REQUIRE(y[i] == (activation == Activation::relu ? std::max(sum, 0.0F) : sum));
            }
        }
    }
}

TEST_CASE("both inputs of a sum are handed the gradient, masked once, in place or not, or one where one is wanted") {
    reference::Random random(reference::fresh_seed());
    const Floats dy = random.normal(count);
    Floats y = random.normal(count);
    for (float& value : y) value = std::max(value, 0.0F);
    for (const bool relu : {false, true}) {
        for (const bool masked_by_next : {false, true}) {
            Made<ops::Add<Host, float>> add(relu ? Activation::relu : Activation::none, masked_by_next);
            Floats expected = dy;
            for (std::size_t i = 0; relu && !masked_by_next && i < expected.size(); ++i) expected[i] = y[i] > 0 ? dy[i] : 0.0F;
            for (const int wanted : {0, 1, 2, 3, 4}) {
                CAPTURE(wanted);
                Floats gradient = dy, first = nothing, second = nothing;
                Pass<Host> pass{.context = add.context};
                pass.output = y.data(), pass.output_gradient = gradient.data();
                if (wanted == 0 || wanted == 1 || wanted == 3) pass.input_gradient = first.data();
                if (wanted == 0 || wanted == 2) pass.second_input_gradient = second.data();
                if (wanted == 3) pass.second_input_gradient = gradient.data();
                add.op.backward(pass);
                CHECK((wanted == 0 || wanted == 1 || wanted == 3 ? first == expected : std::isnan(first[0])));
                CHECK((wanted == 0 || wanted == 2 ? second == expected : std::isnan(second[0])));
                if (wanted == 3) CHECK(gradient == expected);
            }
        }
    }
}

TEST_CASE("a fork adds the gradients of its two readers, in the place of the first") {
    reference::Random random(reference::fresh_seed());
    const Floats b = random.normal(count);
    Floats a = random.normal(count), expected = a;
    for (std::size_t i = 0; i < a.size(); ++i) expected[i] += b[i];
    Made<ops::Fork<Host, float>> fork;
    Pass<Host> pass{.context = fork.context};
    pass.output_gradient = a.data(), pass.second_output_gradient = b.data();
    const Floats before = a;
    fork.op.backward(pass);  // nobody wants it
    CHECK(a == before);
    pass.input_gradient = a.data();
    fork.op.backward(pass);
    CHECK(a == expected);
}
