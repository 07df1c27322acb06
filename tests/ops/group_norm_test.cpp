// SPDX-License-Identifier: Apache-2.0
//
// Normalisation of groups against plain loops in double: groups of an image, the channels of a position (layer and RMS
// normalisation), and single channels (instance normalisation).
#include "../test.hpp"

#include <cupola/ops/group_norm.hpp>

#include "../devices.hpp"
#include "../reference/group_norm.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance, reference::Doubles;

namespace {

struct Case {
    std::int64_t batch, height, width, channels, groups;
    /// Whether each position is normalised by itself.
    bool by_position = false;
    bool centred = true;
    std::size_t parameters = 2;
};

std::string describe(const Case& c) {
    return text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.channels, ", groups ", c.groups,
                c.by_position ? ", by position" : "", c.centred ? "" : ", not centred", ", parameters ", c.parameters);
}

GroupNormShape shape_of(const Case& c) {
    return {.positions = c.by_position ? 1 : c.height * c.width,
            .channels = c.channels,
            .groups = c.groups,
            .epsilon = 1e-3,
            .centred = c.centred};
}

reference::GroupNorm oracle(const Case& c) {
    const GroupNormShape s = shape_of(c);
    return {s.positions, s.channels, s.groups, s.epsilon, s.centred};
}

template <class D>
Problem problem_of(const Case& c, std::uint64_t seed, int threads, double mean = 0.5) {
    reference::Random random(seed);
    Problem problem;
    problem.input = problem.output = {c.height, c.width, c.channels};
    problem.batch = c.batch;
    problem.threads = threads;
    problem.x = rounded<D>(random.normal(c.batch * problem.input.size(), 2.0, mean));
    problem.dy = rounded<D>(random.normal(c.batch * problem.input.size(), 1.0, 0.5));
    for (std::size_t i = 0; i < c.parameters; ++i) {
        problem.parameters.push_back(random.normal(c.channels));
        problem.gradients_before.push_back(random.normal(c.channels));
    }
    return problem;
}

template <class D>
Outcome run(const Case& c, const Problem& problem) {
    return operation_run::run<D>(
        problem, [&](const auto& build) { return ops::GroupNorm<DeviceOf<D>, ElementOf<D>>(build, shape_of(c)); });
}

template <class D>
void check(const Case& c, const Problem& problem, const Outcome& outcome) {
    const Floats weight = c.parameters > 0 ? problem.parameters[0] : Floats(static_cast<std::size_t>(c.channels), 1.0F),
                 bias = c.parameters > 1 ? problem.parameters[1] : Floats(weight.size());
    CHECK(distance(outcome.output, oracle(c).forward(problem.x, weight, bias)) < tolerance<D>);
    const reference::GroupNormGradients expected = oracle(c).gradients(problem.x, problem.dy, weight);
    CHECK(distance(outcome.input_gradient, expected.input) < tolerance<D>);
    const Doubles* const of_parameters[] = {&expected.weight, &expected.bias};
    const Doubles* const terms[] = {&expected.weight_terms, &expected.bias_terms};
    for (std::size_t p = 0; p < c.parameters; ++p) {
        for (std::size_t i = 0; i < weight.size(); ++i) {
            const auto before = problem.accumulate ? static_cast<double>(problem.gradients_before[p][i]) : 0.0;
            CHECK(std::abs(static_cast<double>(outcome.parameter_gradients[p][i]) - (*of_parameters[p])[i] - before) <=
                  1e-6 * ((*terms[p])[i] + std::abs(before)));
        }
    }
}

const std::vector<Case> cases{
    {2, 3, 5, 12, 3},                 // groups of 4
    {3, 7, 1, 33, 11},                // one column
    {1, 1, 1, 20, 2},                 // one position
    {2, 2, 3, 6, 1},                  // all of a sample
    {2, 4, 3, 5, 5, false, true, 0},  // each channel
    {3, 2, 2, 3, 3},
    {1, 1, 3, 4, 2, false, true, 1},  // groups of at most 8 elements
    {2, 3, 5, 24, 1, true},           // the channels of each position
    {2, 3, 1, 7, 1, true},
    {5, 1, 1, 13, 1, true},
    {1, 1, 1, 100, 1, true},
    {2, 3, 3, 1, 1, true},  // whose mean is the value
    {2, 3, 5, 24, 1, true, false, 1},
    {300, 1, 1, 3, 1, true, false, 1},
};

}  // namespace

TYPED_TEST_CASE("normalisation of groups, forward and backward, agrees with plain loops", D, DevicesAndElements) {
    for (const Case& c : cases) {
        const std::uint64_t seed = reference::fresh_seed();
        Outcome one;
        for (int threads = 1; threads <= (CaseContext<DeviceOf<D>>::is_shared ? 1 : 3); ++threads) {
            INFO(describe(c), ", threads ", threads, ", seed ", seed);
            const Problem problem = problem_of<D>(c, seed, threads);
            const Outcome outcome = run<D>(c, problem);
            check<D>(c, problem, outcome);
            if (threads == 1) one = outcome;
            CHECK(reference::same_bits(outcome.output, one.output));
            CHECK(reference::same_bits(outcome.input_gradient, one.input_gradient));
            for (std::size_t p = 0; p < c.parameters; ++p)
                CHECK(reference::same_bits(outcome.parameter_gradients[p], one.parameter_gradients[p]));
        }
    }
}

TYPED_TEST_CASE("normalisation of groups adds to the gradients of its parameters", D, DevicesAndElements) {
    for (const Case& c : {cases[0], cases[7]}) {
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 2);
        problem.accumulate = true;
        check<D>(c, problem, run<D>(c, problem));
    }
}

TYPED_TEST_CASE("normalisation of groups is as precise where the mean is large beside the deviation", D, Devices) {
    for (const Case& c : {cases[0], cases[7]}) {
        for (const double mean : {1e4, -1e6}) {
            CAPTURE(mean);
            const Problem problem = problem_of<D>(c, reference::fresh_seed(), 2, mean);
            check<D>(c, problem, run<D>(c, problem));
        }
    }
}

TYPED_TEST_CASE("normalisation of groups skips an input gradient that is not needed", D, DevicesAndElements) {
    const Case& c = cases[0];
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    const Outcome full = run<D>(c, problem);
    problem.input_gradient = problem.made_for_input_gradient = false;
    const Outcome outcome = run<D>(c, problem);
    for (const float value : outcome.input_gradient) CHECK(std::isnan(value));
    CHECK(reference::same_bits(outcome.parameter_gradients[0], full.parameter_gradients[0]));
}

TYPED_TEST_CASE("outside training a normalisation of groups keeps nothing, and has the same bits", D,
                DevicesAndElements) {
    for (const Case& c : {cases[0], cases[7]}) {
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
        const Outcome trained = run<D>(c, problem);
        CHECK(trained.needs.saved ==
              16U * static_cast<std::size_t>(c.batch * c.groups * (c.by_position ? c.height * c.width : 1)));
        problem.made_for_training = problem.training = false;
        const Outcome outcome = run<D>(c, problem);
        CHECK(outcome.needs.saved == 0);
        CHECK(reference::same_bits(outcome.output, trained.output));
    }
}

TYPED_TEST_CASE("a NaN stays in its group, and in the gradients of its channels", D, DevicesAndElements) {
    const Case& c = cases[0];
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    problem.x[5] = std::numeric_limits<float>::quiet_NaN();
    const Outcome outcome = run<D>(c, problem);
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        const bool in_group = i < problem.x.size() / 2 && i % 12 / 4 == 1;
        CHECK(std::isnan(outcome.output[i]) == in_group);
        CHECK(std::isnan(outcome.input_gradient[i]) == in_group);
    }
    for (std::size_t channel = 0; channel < 12; ++channel) {
        CHECK(std::isnan(outcome.parameter_gradients[0][channel]) == (channel / 4 == 1));
        CHECK(!std::isnan(outcome.parameter_gradients[1][channel]));
    }
}
