// SPDX-License-Identifier: Apache-2.0
#include <cupola/net/fusion.hpp>

#include <array>
#include <cstring>

#include <doctest/doctest.h>

#include <cupola/net/plan.hpp>

#include "tutorial.hpp"

using namespace cupola;

TEST_CASE("Conv2d, ReLU and Linear, ReLU become one stage; other activations stand alone") {
    std::array<StageInfo, tutorial::Net::layer_count> stages{};
    CHECK(fuse(tutorial::Net::rows, true, stages) == 10);
    CHECK(stages[0].rows == 2);
    CHECK(stages[0].activation == Activation::relu);
    CHECK(stages[1].row == 2);
    CHECK(fuse(tutorial::Net::rows, false, stages) == 14);
    CHECK(stages[0].activation == Activation::none);

    struct Alone : Sequential<Input<4>, ReLU, Linear<3>, ReLU, ReLU> {};
    std::array<StageInfo, 4> few{};
    REQUIRE(fuse(Alone::rows, true, few) == 3);
    CHECK(few[0].rows == 1);
    CHECK(few[1].rows == 2);
    CHECK(few[2].rows == 1);
}

namespace {

template <class Net>
struct Result {
    std::vector<float> output, gradients;
    explicit Result(const std::vector<float>& parameters, const std::vector<float>& images, std::int64_t batch) {
        HostContext context(0, {.threads = 1});
        auto plan = Plan<Host>::make<Net>(context, {.batch = batch});
        HostArena arena(plan.bytes().total(), "test");
        plan.bind(arena.data());
        plan.prepare(context, parameters.data());
        const float* logits = plan.forward(context, images.data(), parameters.data(), {});
        output.assign(logits, logits + batch * Net::output_shape.size());
        for (std::size_t i = 0; i < output.size(); ++i) plan.output_gradient()[i] = 0.01F * static_cast<float>(i % 7) - 0.03F;
        gradients.assign(static_cast<std::size_t>(Net::parameter_elements), 0.0F);
        plan.backward(context, images.data(), parameters.data(), gradients.data(), {});
    }
};

}  // namespace

TEST_CASE("the pass changes no bit: output and gradients of the fused network equal the plain one's") {
    using Net = tutorial::SmallNet;
    std::vector<float> parameters(static_cast<std::size_t>(Net::parameter_elements));
    initialize(parameters, normal(0.1), 1, 1, 5, 0);
    std::vector<float> images(5 * 24 * 24 * 3);
    initialize(images, normal(1.0), 1, 1, 6, 0);
    const Result<Net> fused(parameters, images, 5);
    const Result<Unfused<Net>> plain(parameters, images, 5);
    REQUIRE(fused.output.size() == plain.output.size());
    CHECK(std::memcmp(fused.output.data(), plain.output.data(), fused.output.size() * sizeof(float)) == 0);
    CHECK(std::memcmp(fused.gradients.data(), plain.gradients.data(), fused.gradients.size() * sizeof(float)) == 0);
    double norm = 0;
    for (const float g : fused.gradients) norm += static_cast<double>(g) * static_cast<double>(g);
    CHECK(norm > 0);
}
