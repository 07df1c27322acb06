// SPDX-License-Identifier: Apache-2.0
//
// Local response normalisation against plain loops in double.
#include "../test.hpp"

#include <cupola/ops/local_response_norm.hpp>

#include "../devices.hpp"
#include "../reference/local_response_norm.hpp"
#include "../throws_with.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance;

namespace {

struct Case {
    std::int64_t batch, height, width, channels, radius;
    float bias = 1.0F, alpha = 0.001F / 9.0F, beta = 0.75F;
};

std::string describe(const Case& c) {
    return text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.channels, ", radius ", c.radius, ", bias ",
                c.bias, ", alpha ", c.alpha, ", beta ", c.beta);
}

reference::LocalResponseNorm oracle(const Case& c) {
    return {c.channels, c.radius, static_cast<double>(c.bias), static_cast<double>(c.alpha),
            static_cast<double>(c.beta)};
}

template <class D>
Problem problem_of(const Case& c, std::uint64_t seed, int threads) {
    reference::Random random(seed);
    Problem problem;
    problem.input = problem.output = {c.height, c.width, c.channels};
    problem.batch = c.batch;
    problem.threads = threads;
    problem.x = rounded<D>(random.normal(c.batch * problem.input.size(), 2.0));
    problem.dy = rounded<D>(random.normal(c.batch * problem.input.size()));
    return problem;
}

template <class D>
Outcome run(const Case& c, const Problem& problem) {
    return operation_run::run<D>(problem, [&](const auto& build) {
        return ops::LocalResponseNorm<DeviceOf<D>, ElementOf<D>>(
            build, LocalResponseNormShape{c.channels, c.radius, c.bias, c.alpha, c.beta});
    });
}

const std::vector<Case> cases{
    {2, 6, 6, 64, 4},              // the tutorial's
    {2, 5, 7, 64, 4, 1.0F, 0.3F},  // strong enough that every term counts
    {1, 3, 3, 5, 4, 1.0F, 0.3F},   // fewer channels than the window
    {3, 2, 5, 3, 2, 2.0F, 0.5F},
    {17, 3, 1, 1, 0, 1.0F, 1.0F, 0.5F},  // each channel alone
    {17, 3, 1, 1, 4, 1.0F, 1.0F},
    {17, 9, 4, 5, 1, 1.0F, 0.7F},
    {3, 5, 5, 16, 2, 1.0F, 0.2F, 0.5F},  // TensorFlow's own default power
    {3, 5, 5, 17, 2, 1.0F, 0.2F, 1.0F},
    {3, 5, 5, 33, 7, 0.5F, 0.1F, 0.6F},
    {2, 3, 3, 64, 63, 1.0F, 0.05F},  // every channel sees all
    {2, 3, 3, 100, 4, 1.0F, 0.3F, 2.0F},
};

}  // namespace

TYPED_TEST_CASE("local response normalisation, forward and backward, agrees with plain loops", D, DevicesAndElements) {
    for (const Case& c : cases) {
        for (const int threads : thread_counts<D>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(c), ", threads ", threads, ", seed ", seed);
            const Problem problem = problem_of<D>(c, seed, threads);
            const Outcome outcome = run<D>(c, problem);
            CHECK(distance(outcome.output, oracle(c).forward(problem.x)) < tolerance<D>);
            CHECK(distance(outcome.input_gradient, oracle(c).input_gradient(problem.dy, problem.x)) < tolerance<D>);
        }
    }
}

TYPED_TEST_CASE("local response normalisation has the same bits for 1 and 2 threads and for a split batch", D,
                DevicesAndElements) {
    const Case c{6, 5, 7, 64, 4, 1.0F, 0.3F};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const Problem problem = problem_of<D>(c, seed, 1);
    const Outcome one = run<D>(c, problem), two = run<D>(c, problem_of<D>(c, seed, 2));
    CHECK(reference::same_bits(one.output, two.output));
    CHECK(reference::same_bits(one.input_gradient, two.input_gradient));

    Case first = c;
    first.batch = 2;
    Problem part = problem;
    part.batch = 2;
    part.x.resize(part.x.size() / 3);
    part.dy.resize(part.dy.size() / 3);
    const Outcome split = run<D>(first, part);
    CHECK(reference::same_bits(split.output, std::span(one.output).first(split.output.size())));
    CHECK(reference::same_bits(split.input_gradient, std::span(one.input_gradient).first(split.output.size())));
}

TYPED_TEST_CASE("local response normalisation is precise for large and small numbers, element for element", D,
                DevicesAndElements) {
    // Half a step of the element type: of a number, and of those next to zero.
    using T = ElementOf<D>;
    const bool half = std::is_same_v<T, Float16>;
    const double step = std::is_same_v<T, float> ? 1e-6 : half ? 0x1.02p-11 : 0x1.01p-8, least = half ? 0x1p-25 : 0.0;
    const int most = half ? 12 : 30;
    for (const float beta : {0.75F, 0.5F}) {
        for (int exponent = -most; exponent <= most; ++exponent) {
            CAPTURES(beta, exponent);
            const Case c{1, 1, 3, 20, 1, 1.0F, 1.0F, beta};
            Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
            for (float& value : problem.x) value = std::ldexp(value, exponent);
            problem.x = rounded<D>(problem.x);
            const Outcome outcome = run<D>(c, problem);
            const reference::Doubles expected = oracle(c).forward(problem.x);
            double worst = 0;
            for (std::size_t i = 0; i < expected.size(); ++i) {
                const double error = std::abs(static_cast<double>(outcome.output[i]) - expected[i]);
                worst = std::max(worst, error / (step * std::abs(expected[i]) + least));
            }
            CHECK(worst < 1);
        }
    }
}

TYPED_TEST_CASE("local response normalisation skips an input gradient that is not needed", D, DevicesAndElements) {
    const Case c{2, 3, 3, 16, 2};
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    problem.input_gradient = problem.made_for_input_gradient = false;
    const Outcome outcome = run<D>(c, problem);
    for (const float value : outcome.input_gradient) CHECK(std::isnan(value));
}

TYPED_TEST_CASE("local response normalisation propagates a NaN to its window only", D, DevicesAndElements) {
    const Case c{1, 1, 2, 16, 2};
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    problem.x[8] = std::numeric_limits<float>::quiet_NaN();
    const Outcome outcome = run<D>(c, problem);
    for (std::size_t i = 0; i < 32; ++i) CHECK(std::isnan(outcome.output[i]) == (i >= 6 && i <= 10));
}

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("more channels than a row can hold are rejected with the numbers") {
    HostContext context(0, {});
    const auto make = [&](std::int64_t channels, std::int64_t radius) {
        const Shape shape{1, 1, channels};
        ops::LocalResponseNorm<Host, float>(
            BuildContext<Host>{.context = context, .batch = 1, .input = shape, .output = shape},
            LocalResponseNormShape{.channels = channels, .radius = radius});
    };
    CHECK(message_of<InvalidArgument>([&] { make(4096, 1); }) ==
          "local response normalisation takes at most 4096 channels with its window on both sides, not 4096 + 2 x 1");
    CHECK_NOTHROW(make(4088, 4));
}

#endif

TYPED_TEST_CASE("the largest row that local response normalisation supports is computed correctly", D,
                DevicesAndElements) {
    const Case c{1, 1, 2, 4088, 4, 1.0F, 0.3F};
    const Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    const Outcome outcome = run<D>(c, problem);
    CHECK(distance(outcome.output, oracle(c).forward(problem.x)) < tolerance<D>);
    CHECK(distance(outcome.input_gradient, oracle(c).input_gradient(problem.dy, problem.x)) < tolerance<D>);
}
