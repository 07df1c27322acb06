// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation against plain loops in double, and the sums that replicas exchange.
#include "../test.hpp"

#include <cupola/ops/batch_norm.hpp>

#include "../devices.hpp"
#include "../reference/batch_norm.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance, reference::distance_of_sums_at;

namespace {

struct Case {
    std::int64_t batch, height, width, channels;
    double mean = 0.5, epsilon = 1e-5;
};

std::string describe(const Case& c) {
    return text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.channels, ", mean ", c.mean);
}

template <class D>
Problem problem_of(const Case& c, std::uint64_t seed, int threads, Activation activation = Activation::none) {
    reference::Random random(seed);
    Problem problem;
    problem.input = problem.output = {c.height, c.width, c.channels};
    problem.batch = c.batch;
    problem.threads = threads;
    problem.activation = activation;
    problem.x = rounded<D>(random.normal(c.batch * problem.input.size(), 2.0, c.mean));
    // Sums that do not cancel by chance, in one channel alone for example: then there is nothing to compare with.
    problem.dy = random.normal(c.batch * problem.input.size(), 1.0, 0.5);
    for (std::size_t i = 0; i < problem.dy.size(); ++i)
        problem.dy[i] += 0.3F * (problem.x[i] - static_cast<float>(c.mean));
    problem.dy = rounded<D>(problem.dy);
    problem.parameters = {random.normal(c.channels, 0.5, 1.0), random.normal(c.channels, 0.5)};
    problem.buffers = {random.normal(c.channels), random.normal(c.channels)};
    for (float& variance : problem.buffers[1]) variance = variance * variance + 0.1F;
    return problem;
}

reference::BatchNorm oracle(const Case& c, Activation activation = Activation::none) {
    reference::BatchNorm norm{static_cast<std::size_t>(c.channels), c.epsilon, activation != Activation::none};
    if (activation == Activation::relu6) norm.most = 6;
    return norm;
}

template <class D>
Outcome run(const Case& c, const Problem& problem) {
    return operation_run::run<D>(problem, [&](const auto& build) {
        return ops::BatchNorm<DeviceOf<D>, ElementOf<D>>(build, BatchNormShape{c.channels, c.epsilon});
    });
}

// Channels in pieces of 64 and fewer, and what fills no register; blocks of 32 rows and more, groups of 8 and the rest.
const std::vector<Case> cases{
    {2, 4, 4, 16}, {3, 5, 7, 3},   {4, 32, 32, 16}, {2, 9, 9, 64}, {1, 4, 3, 83}, {3, 8, 8, 100, -3.0, 1e-3},
    {20, 1, 1, 5}, {1, 47, 51, 1}, {2, 7, 7, 600},  {7, 3, 5, 17}, {5, 1, 1, 31}, {6, 1, 7, 65},
};

}  // namespace

TYPED_TEST_CASE(
    "batch normalisation in training agrees with plain loops, forward and backward, alone, with a ReLU and a ReLU6", D,
    DevicesAndElements) {
    for (const Case& c : cases) {
        for (const Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
            if (activation == Activation::relu6 && &c != cases.data() && &c != &cases[5]) continue;
            for (const int threads : thread_counts<D>()) {
                const std::uint64_t seed = reference::fresh_seed();
                INFO(describe(c), ", activation ", static_cast<int>(activation), ", threads ", threads, ", seed ",
                     seed);
                Problem problem = problem_of<D>(c, seed, threads, activation);
                if (activation == Activation::relu6) {
                    for (float& weight : problem.parameters[0]) weight *= 6.0F;
                }
                const Outcome outcome = run<D>(c, problem);
                const auto reference = oracle(c, activation);
                const auto moments = reference.moments(problem.x);
                const auto &weight = problem.parameters[0], &bias = problem.parameters[1];
                if (activation == Activation::relu6) CHECK(std::ranges::count(outcome.output, 6.0F) > 0);
                // The part that a ReLU passes may be almost empty.
                CHECK(reference::distance_at(oracle(c).forward(problem.x, weight, bias, moments), outcome.output,
                                             reference.forward(problem.x, weight, bias, moments)) < tolerance<D>);
                CHECK(distance(outcome.statistics[0], moments.mean) < reference::tolerance);
                CHECK(distance(outcome.statistics[1], moments.variance) < reference::tolerance);
                const auto gradients = reference.backward(problem.dy, problem.x, weight, outcome.output, moments);
                CHECK(distance(outcome.input_gradient, gradients.input) < tolerance<D>);
                const auto terms = reference.gradient_terms(problem.dy, problem.x, outcome.output, moments);
                CHECK(distance_of_sums_at(gradients.weight, outcome.parameter_gradients[0], gradients.weight,
                                          [&] { return terms.weight; }) < reference::tolerance);
                CHECK(distance_of_sums_at(gradients.bias, outcome.parameter_gradients[1], gradients.bias,
                                          [&] { return terms.bias; }) < reference::tolerance);
            }
        }
    }
}

TYPED_TEST_CASE("outside training batch normalisation uses the running statistics as constants", D,
                DevicesAndElements) {
    for (const Case& c : cases) {
        for (const bool made_for_training : {false, true}) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(c), ", with backward ", made_for_training, ", seed ", seed);
            Problem problem = problem_of<D>(c, seed, 2, Activation::relu);
            problem.training = false;
            problem.made_for_training = made_for_training;
            const Outcome outcome = run<D>(c, problem);
            const auto reference = oracle(c, Activation::relu);
            const reference::BatchNorm::Moments running{reference::widen(problem.buffers[0]),
                                                        reference::widen(problem.buffers[1])};
            const auto &weight = problem.parameters[0], &bias = problem.parameters[1];
            CHECK(reference::distance_at(oracle(c).forward(problem.x, weight, bias, running), outcome.output,
                                         reference.forward(problem.x, weight, bias, running)) < tolerance<D>);
            for (const float value : outcome.statistics[0]) CHECK(std::isnan(value));  // not written
            if (!made_for_training) continue;
            const auto gradients = reference.backward(problem.dy, problem.x, weight, outcome.output, running, true);
            CHECK(distance(outcome.input_gradient, gradients.input) < tolerance<D>);
            const auto terms = reference.gradient_terms(problem.dy, problem.x, outcome.output, running);
            CHECK(distance_of_sums_at(gradients.weight, outcome.parameter_gradients[0], gradients.weight,
                                      [&] { return terms.weight; }) < reference::tolerance);
        }
    }
}

TYPED_TEST_CASE("batch normalisation adds to parameter gradients if `accumulate` is set", D, DevicesAndElements) {
    const Case c{3, 5, 5, 19};
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    const Outcome alone = run<D>(c, problem);
    problem.accumulate = true;
    problem.gradients_before = problem.parameters;
    const Outcome added = run<D>(c, problem);
    for (std::size_t p = 0; p < 2; ++p) {
        for (std::size_t i = 0; i < problem.parameters[p].size(); ++i) {
            CHECK(added.parameter_gradients[p][i] ==
                  doctest::Approx(problem.parameters[p][i] + alone.parameter_gradients[p][i]).epsilon(1e-5));
        }
    }
}

TYPED_TEST_CASE("batch normalisation has the same bits for 1, 2 and 3 threads", D, DevicesAndElements) {
    const Case c{5, 17, 19, 48};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const Outcome one = run<D>(c, problem_of<D>(c, seed, 1));
    for (const int threads : {2, 3}) {
        CAPTURE(threads);
        const Outcome several = run<D>(c, problem_of<D>(c, seed, threads));
        CHECK(reference::same_bits(one.output, several.output));
        CHECK(reference::same_bits(one.input_gradient, several.input_gradient));
        CHECK(reference::same_bits(one.parameter_gradients[0], several.parameter_gradients[0]));
        CHECK(reference::same_bits(one.statistics[1], several.statistics[1]));
    }
}

TYPED_TEST_CASE("the variance of numbers far from zero is exact: nothing cancels", D, DevicesAndElements) {
    const Case c{4, 32, 32, 16, std::is_same_v<ElementOf<D>, Float16> ? 10000.0 : 100000.0};  // Float16 ends at 65,504
    const Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    const Outcome outcome = run<D>(c, problem);
    CHECK(distance(outcome.statistics[1], oracle(c).moments(problem.x).variance) < reference::tolerance);
}

TYPED_TEST_CASE("a channel of one large number has the variance 0: its outputs are the bias", D, DevicesAndElements) {
    const Case c{3, 41, 43, 5, 0};
    Problem problem = problem_of<D>(c, 5, 2);
    for (const float number : {0.1F, 1e4F, -12345678.0F, 3.1e8F, 1e12F}) {
        INFO("number ", number);
        std::ranges::fill(problem.x, number);
        problem.x = rounded<D>(problem.x);
        const Outcome outcome = run<D>(c, problem);
        std::size_t far = 0;
        for (std::size_t i = 0; i < problem.x.size(); ++i) {
            // The deviation of the rounded mean from the number is divided by sqrt(epsilon).
            const double weight = problem.parameters[0][i % 5] * 317.0, bias = problem.parameters[1][i % 5];
            const double rounding = std::abs(weight * number) * 1.2e-7 + 0.01 * (std::abs(bias) + 1);
            if (!(std::abs(static_cast<double>(outcome.output[i]) - bias) <= rounding)) ++far;
        }
        CHECK(far == 0);
        for (const float variance : outcome.statistics[1])
            CHECK((variance >= 0 && variance <= number * number * 1e-13F));
    }
}

TYPED_TEST_CASE("batch normalisation skips an input gradient that is not needed", D, DevicesAndElements) {
    const Case c{2, 3, 3, 16};
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    const Outcome with = run<D>(c, problem);
    problem.input_gradient = problem.made_for_input_gradient = false;
    const Outcome without = run<D>(c, problem);
    for (const float value : without.input_gradient) CHECK(std::isnan(value));
    CHECK(reference::same_bits(with.parameter_gradients[0], without.parameter_gradients[0]));
}

TYPED_TEST_CASE("batch normalisation has the same input gradient in the place of the output's", D, DevicesAndElements) {
    for (const std::int64_t channels : {7, 44}) {
        const Case c{3, 9, 5, channels};
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 2, Activation::relu);
        const Outcome apart = run<D>(c, problem);
        problem.in_place = true;
        CHECK(reference::same_bits(run<D>(c, problem).input_gradient, apart.input_gradient));
    }
}

TYPED_TEST_CASE("a NaN and an infinity affect their channels and no other", D, DevicesAndElements) {
    const Case c{2, 3, 3, 20};
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1, Activation::relu);
    problem.x[7] = std::nanf("");
    problem.x[5 * 20 + 17] = std::numeric_limits<float>::infinity();
    const Outcome outcome = run<D>(c, problem);
    for (std::size_t i = 0; i < outcome.output.size(); ++i)
        CHECK(std::isnan(outcome.output[i]) == (i % 20 == 7 || i % 20 == 17));
}

TEST_CASE("moments merged from any split are those of all samples, and parts without samples are ignored") {
    constexpr std::size_t channels = 3;
    reference::Random random(reference::fresh_seed());
    const reference::Floats x = random.normal(3 * 50, 2.0, 100.0);
    const auto sums_of = [&](std::size_t begin, std::size_t end) {
        const std::span<const float> part = std::span(x).subspan(begin * channels, (end - begin) * channels);
        std::vector<double> sums(7);
        if (part.empty()) return sums;
        const auto m = reference::BatchNorm{channels}.moments(part);
        sums[0] = static_cast<double>(end - begin);
        for (std::size_t c = 0; c < channels; ++c) {
            sums[1 + c] = m.mean[c];
            sums[4 + c] = m.variance[c] * sums[0];
        }
        return sums;
    };
    const std::vector<double> whole = sums_of(0, 50), a = sums_of(0, 7), none = sums_of(7, 7), b = sums_of(7, 8),
                              c = sums_of(8, 50);
    std::vector<double> merged(7, -1.0);
    merge_moments(std::vector<const double*>{a.data(), none.data(), b.data(), nullptr, c.data()}, 7, merged.data());
    for (std::size_t i = 0; i < 7; ++i) CHECK(merged[i] == doctest::Approx(whole[i]).epsilon(1e-10));
    // One part alone is itself, to the bit.
    merge_moments(std::vector<const double*>{nullptr, a.data()}, 7, merged.data());
    CHECK(merged == a);
}

TEST_CASE("the sums of backward are averaged with weights by their samples") {
    const std::vector<double> a{2, 1, 10}, b{6, 5, 30};
    std::vector<double> merged(3);
    merge_gradient_sums(std::vector<const double*>{a.data(), nullptr, b.data()}, 3, merged.data());
    CHECK(merged == std::vector<double>{8, 4, 25});
}
