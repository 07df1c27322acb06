// SPDX-License-Identifier: Apache-2.0
//
// Dropout: its mask is a function of seed, layer, step and the sample's place in the global batch, and of nothing else.
#include "../test.hpp"

#include <cupola/ops/dropout.hpp>

#include "../devices.hpp"
#include "../reference/dropout.hpp"
#include "operation_run.hpp"

using namespace operation_run;

namespace {

Problem problem_of(std::int64_t batch, std::int64_t features, int threads) {
    Problem problem;
    problem.input = problem.output = {features};
    problem.batch = batch;
    problem.threads = threads;
    problem.x = Floats(static_cast<std::size_t>(batch * features), 1.0F);
    problem.dy = problem.x;
    problem.seed = 0x0123456789abcdef;
    problem.step = 17;
    problem.layer = 5;
    return problem;
}

template <class D>
Outcome run(const Problem& problem, double rate) {
    return operation_run::run<D>(
        problem, [&](const auto& build) { return ops::Dropout<DeviceOf<D>, ElementOf<D>>(build, rate); });
}

}  // namespace

TYPED_TEST_CASE("dropout agrees with the reference's mask, forward and backward", D, DevicesAndElements) {
    for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
        for (const std::int64_t features : {1, 3, 4, 5, 64, 1001}) {
            for (const int threads : thread_counts<D>()) {
                const std::uint64_t seed = reference::fresh_seed();
                INFO("rate ", rate, ", ", features, " features, threads ", threads, ", seed ", seed);
                reference::Random random(seed);
                Problem problem = problem_of(7, features, threads);
                problem.seed = seed * 0x9E3779B97F4A7C15ULL;
                problem.first_sample = 1000;
                problem.x = rounded<D>(random.normal(7 * features));
                problem.dy = rounded<D>(random.normal(7 * features));
                const Outcome outcome = run<D>(problem, rate);
                reference::Doubles y =
                    reference::Dropout{problem.seed, problem.layer, problem.step, static_cast<float>(rate)}.factors(
                        1000, 7, features);
                reference::Doubles dx = y;
                for (std::size_t i = 0; i < y.size(); ++i) {
                    y[i] *= static_cast<double>(problem.x[i]);
                    dx[i] *= static_cast<double>(problem.dy[i]);
                }
                const double precision = std::is_same_v<ElementOf<D>, float> ? 1e-6 : tolerance<D>;
                CHECK(reference::distance(outcome.output, y) < precision);
                CHECK(reference::distance(outcome.input_gradient, dx) < precision);
            }
        }
    }
}

TYPED_TEST_CASE("dropout drops at its rate and keeps the mean", D, DevicesAndElements) {
    for (const double rate : {0.1, 0.5, 0.8}) {
        CAPTURE(rate);
        const Outcome outcome = run<D>(problem_of(64, 4096, 1), rate);
        double dropped = 0, mean = 0;
        const auto count = static_cast<double>(outcome.output.size());
        for (const float value : outcome.output) {
            dropped += value == 0.0F ? 1 : 0;
            mean += static_cast<double>(value);
        }
        CHECK(std::abs(dropped / count - rate) < 6 * std::sqrt(rate * (1 - rate) / count));
        CHECK(mean / count == doctest::Approx(1.0).epsilon(0.02));
    }
}

TYPED_TEST_CASE("dropout's forward and backward drop the same elements", D, DevicesAndElements) {
    const Outcome outcome = run<D>(problem_of(5, 333, 2), 0.5);
    CHECK(reference::same_bits(outcome.output, outcome.input_gradient));
}

TYPED_TEST_CASE("dropout's mask does not depend on how the global batch is split, or on threads", D,
                DevicesAndElements) {
    const Outcome whole = run<D>(problem_of(12, 77, 1), 0.5);
    CHECK(reference::same_bits(run<D>(problem_of(12, 77, 2), 0.5).output, whole.output));
    for (const std::int64_t parts : {2, 3, 4, 12}) {
        CAPTURE(parts);
        for (std::int64_t part = 0; part < parts; ++part) {
            const std::int64_t batch = 12 / parts;
            Problem problem = problem_of(batch, 77, 1);
            problem.first_sample = part * batch;
            const Outcome outcome = run<D>(problem, 0.5);
            const auto expected =
                std::span(whole.output)
                    .subspan(static_cast<std::size_t>(part * batch * 77), static_cast<std::size_t>(batch * 77));
            CHECK(reference::same_bits(outcome.output, expected));
            CHECK(reference::same_bits(outcome.input_gradient, expected));
        }
    }
}

TYPED_TEST_CASE("dropout's mask differs by seed, step, layer and sample", D, DevicesAndElements) {
    const Problem problem = problem_of(2, 256, 1);
    const Floats mask = run<D>(problem, 0.5).output;
    const auto agreement = [&](const Floats& other) {
        int alike = 0;
        for (std::size_t i = 0; i < mask.size(); ++i) alike += mask[i] == other[i] ? 1 : 0;
        return static_cast<double>(alike) / static_cast<double>(mask.size());
    };
    const auto changed = [&](auto change) {
        Problem other = problem;
        change(other);
        return agreement(run<D>(other, 0.5).output);
    };
    // Masks that share nothing agree on half of the elements; six deviations of 512 fair coins are 0.13.
    CHECK(std::abs(changed([](Problem& p) { p.seed += 1; }) - 0.5) < 0.13);
    CHECK(std::abs(changed([](Problem& p) { p.seed += std::uint64_t{1} << 32; }) - 0.5) < 0.13);
    CHECK(std::abs(changed([](Problem& p) { p.step += 1; }) - 0.5) < 0.13);
    CHECK(std::abs(changed([](Problem& p) { p.layer += 1; }) - 0.5) < 0.13);
    CHECK(std::abs(changed([](Problem& p) { p.first_sample += 2; }) - 0.5) < 0.13);
    CHECK(changed([](Problem&) {}) == 1.0);
}

TYPED_TEST_CASE("dropout is the identity in evaluation", D, DevicesAndElements) {
    reference::Random random(1);
    Problem problem = problem_of(3, 50, 1);
    problem.x = rounded<D>(random.normal(150));
    problem.x[7] = std::numeric_limits<float>::quiet_NaN();
    problem.training = problem.made_for_training = false;
    CHECK(reference::same_bits(run<D>(problem, 0.5).output, problem.x));
}

TYPED_TEST_CASE("dropout skips an input gradient that is not needed", D, DevicesAndElements) {
    Problem problem = problem_of(3, 50, 1);
    problem.input_gradient = false;
    for (const float value : run<D>(problem, 0.5).input_gradient) CHECK(std::isnan(value));
}
