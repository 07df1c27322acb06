// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/host/linear_by_rows.hpp
//
// Linear layers against plain loops in double, and their guarantees beside the values.
#include "../test.hpp"

#include <concepts>

#include <cupola/ops/linear.hpp>

#include "../child_process.hpp"
#include "../devices.hpp"
#include "../instructions.hpp"
#include "../reference/linear.hpp"
#include "../reference/relu.hpp"
#include "../throws_with.hpp"
#include "fused_relu.hpp"
#include "operation_run.hpp"

using namespace cupola;
using operation_run::Outcome;
using operation_run::Problem;
using operation_run::rounded;
using operation_run::tolerance;
using reference::added_to_first;
using reference::bias_gradient_of;
using reference::distance_of_sums;
using reference::distance_of_sums_at;
using reference::Floats;
using reference::forward_of;
using reference::input_gradient_of;
using reference::magnitudes;
using reference::weight_gradient_of;

namespace {

struct Case {
    std::int64_t batch, in, out;
    bool bias = true;
};

std::string describe(const Case& c) {
    return text("batch ", c.batch, ", ", c.in, " -> ", c.out, c.bias ? ", bias" : "");
}

reference::Linear oracle(const Case& c) {
    return {static_cast<std::size_t>(c.batch), static_cast<std::size_t>(c.in), static_cast<std::size_t>(c.out)};
}

template <class D>
Problem problem_of(const Case& c, std::uint64_t seed, int threads) {
    reference::Random random(seed);
    Problem problem;
    problem.input = {c.in};
    problem.output = {c.out};
    problem.batch = c.batch;
    problem.threads = threads;
    // A mean of 1, so that a gradient that is a single sum does not cancel to a figure below its own rounding.
    problem.x = rounded<D>(random.normal(c.batch * c.in, 1.0, 1.0));
    problem.dy = rounded<D>(random.normal(c.batch * c.out, 1.0, 1.0));
    problem.parameters = {rounded<D>(random.normal(c.in * c.out))};
    problem.gradients_before = {random.normal(c.in * c.out)};
    if (c.bias) {
        problem.parameters.push_back(random.normal(c.out));
        problem.gradients_before.push_back(random.normal(c.out));
    }
    return problem;
}

template <class D>
Outcome run(const Case& c, const Problem& problem) {
    return operation_run::run<D>(problem, [&](const auto& build) {
        return ops::Linear<DeviceOf<D>, ElementOf<D>>(build, LinearShape{c.in, c.out, c.bias});
    });
}

const std::vector<Case> cases{{1, 1, 1},
                              {1, 1, 1, false},
                              {1, 64, 10},
                              {3, 5, 3},
                              {3, 5, 3, false},
                              {3, 37, 19},
                              {17, 16, 64},
                              {17, 65, 63, false},
                              {16, 64, 64},
                              {1, 2304, 384},
                              {4, 2304, 384},
                              {32, 384, 192},
                              {128, 192, 10},
                              {128, 192, 10, false},
                              {7, 1000, 1},
                              {7, 1, 1000},
                              {33, 100, 129},
                              {300, 20, 16},
                              {129, 9, 7, false},
                              {40, 33, 17},
                              // With more than 1,024 samples a layer on Cuda is never in a chain (LinearChainLimits).
                              {1025, 37, 19},
                              {1030, 16, 24, false},
                              {1025, 20, 16},
                              {1025, 5, 3}};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("a linear layer, forward and backward, agrees with plain loops", D, linear_agrees) {
    for (const Case& c : cases) {
        for (const int threads : thread_counts<D>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(c), ", threads ", threads, ", seed ", seed);
            const reference::Linear r = oracle(c);
            const Problem problem = problem_of<D>(c, seed, threads);
            const Floats &x = problem.x, &w = problem.parameters[0], &dy = problem.dy;
            const Floats b = c.bias ? problem.parameters[1] : Floats{};
            const Outcome outcome = run<D>(c, problem);
            CHECK(distance_of_sums(outcome.output, forward_of(r), x, w, b) < tolerance<D>);
            CHECK(distance_of_sums(outcome.input_gradient, input_gradient_of(r), dy, w) < tolerance<D>);
            CHECK(distance_of_sums(outcome.parameter_gradients[0], weight_gradient_of(r), dy, x) <
                  reference::tolerance);
            if (c.bias)
                CHECK(distance_of_sums(outcome.parameter_gradients[1], bias_gradient_of(r), dy) < reference::tolerance);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_agrees, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("outside training a linear layer agrees with plain loops, with a fused ReLU and without", D,
                          linear_evaluation) {
    for (const Case& c : cases) {
        for (const int threads : thread_counts<D>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(c), ", threads ", threads, ", seed ", seed);
            Problem problem = problem_of<D>(c, seed, threads);
            problem.made_for_training = problem.training = false;
            const reference::Linear r = oracle(c);
            const Floats &x = problem.x, &w = problem.parameters[0];
            const Floats b = c.bias ? problem.parameters[1] : Floats{};
            const auto before = r.forward(x, w, b);
            const auto terms = [&] { return r.forward(magnitudes(x), magnitudes(w), magnitudes(b)); };
            CHECK(distance_of_sums_at(before, run<D>(c, problem).output, before, terms) < tolerance<D>);
            problem.activation = Activation::relu;
            const Outcome fused = run<D>(c, problem);
            CHECK(distance_of_sums_at(before, fused.output, reference::relu(before), terms) < tolerance<D>);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_evaluation, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a ReLU fused into a linear layer agrees with plain loops", D, linear_relu_agrees) {
    for (const Case& c : cases) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        const reference::Linear r = oracle(c);
        Problem problem = problem_of<D>(c, seed, 2);
        problem.activation = Activation::relu;
        const Outcome outcome = run<D>(c, problem);
        const Floats &x = problem.x, &w = problem.parameters[0];
        const Floats b = c.bias ? problem.parameters[1] : Floats{};
        const auto before = r.forward(x, w, b);
        const auto terms = [&] { return r.forward(magnitudes(x), magnitudes(w), magnitudes(b)); };
        CHECK(distance_of_sums_at(before, outcome.output, reference::relu(before), terms) < tolerance<D>);
        const Floats dy = reference::relu_mask(outcome.output, problem.dy);
        CHECK(distance_of_sums(outcome.input_gradient, input_gradient_of(r), dy, w) < tolerance<D>);
        CHECK(distance_of_sums(outcome.parameter_gradients[0], weight_gradient_of(r), dy, x) < reference::tolerance);
        if (c.bias)
            CHECK(distance_of_sums(outcome.parameter_gradients[1], bias_gradient_of(r), dy) < reference::tolerance);
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_relu_agrees, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a linear layer with a fused ReLU gives the bits of the separate operations", D,
                          linear_relu_bits) {
    for (const Case& c : cases) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        fused_relu::check_bits(problem_of<D>(c, seed, 2), [&](const Problem& problem) { return run<D>(c, problem); });
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_relu_bits, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a linear layer whose ReLU mask is applied by the next operation does not apply it", D,
                          linear_masked) {
    for (const Case& c : cases) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        fused_relu::check_mask_applied_by_next(problem_of<D>(c, seed, 2),
                                               [&](const Problem& problem) { return run<D>(c, problem); });
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_masked, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a linear layer adds to its parameters' gradients if `accumulate` is set", D, linear_adds) {
    for (const Case& c : cases) {
        for (const Activation activation : {Activation::none, Activation::relu}) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(c), ", activation ", static_cast<int>(activation), ", seed ", seed);
            const reference::Linear r = oracle(c);
            Problem problem = problem_of<D>(c, seed, 2);
            problem.accumulate = true;
            problem.activation = activation;
            const Outcome outcome = run<D>(c, problem);
            const Floats dy =
                activation == Activation::relu ? reference::relu_mask(outcome.output, problem.dy) : problem.dy;
            CHECK(distance_of_sums(outcome.parameter_gradients[0], added_to_first(weight_gradient_of(r)),
                                   problem.gradients_before[0], dy, problem.x) < reference::tolerance);
            if (c.bias)
                CHECK(distance_of_sums(outcome.parameter_gradients[1], added_to_first(bias_gradient_of(r)),
                                       problem.gradients_before[1], dy) < reference::tolerance);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_adds, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a linear layer skips an input gradient that is not needed", D, linear_null) {
    const Case c{5, 33, 17};
    for (const bool known_before : {true, false}) {
        CAPTURE(known_before);
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
        const Outcome full = run<D>(c, problem);
        problem.input_gradient = false;
        problem.made_for_input_gradient = !known_before;
        const Outcome outcome = run<D>(c, problem);
        for (const float value : outcome.input_gradient) CHECK(std::isnan(value));
        CHECK(reference::same_bits(outcome.output, full.output));
        CHECK(reference::same_bits(outcome.parameter_gradients[0], full.parameter_gradients[0]));
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_null, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE(
    "a linear layer made for evaluation computes the same output, except where it computes row by row", D,
    linear_inference) {
    for (const Case& c : cases) {
        if (std::same_as<ElementOf<D>, float> && c.batch <= 16) continue;
        INFO(describe(c));
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 2);
        problem.activation = Activation::relu;
        const Outcome training = run<D>(c, problem);
        problem.made_for_training = problem.training = false;
        CHECK(reference::same_bits(run<D>(c, problem).output, training.output));
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_inference, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("the bias gradient of a linear layer has the same bits for 1 and 2 threads", D,
                          linear_bias_bits) {
    const Case c{129, 8, 200};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const Outcome one = run<D>(c, problem_of<D>(c, seed, 1)), two = run<D>(c, problem_of<D>(c, seed, 2));
    CHECK(reference::same_bits(one.parameter_gradients[1], two.parameter_gradients[1]));
}
TEST_CASE_TEMPLATE_APPLY(linear_bias_bits, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a linear layer propagates a NaN to its output, and with a ReLU to its weights' gradient", D,
                          linear_nan) {
    const Case c{4, 20, 12};
    for (const Activation activation : {Activation::none, Activation::relu}) {
        CAPTURE(static_cast<int>(activation));
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
        problem.activation = activation;
        problem.x[0] = std::numeric_limits<float>::quiet_NaN();
        const Outcome outcome = run<D>(c, problem);
        for (std::size_t o = 0; o < 48; ++o) {
            if (o >= 12) CHECK_FALSE(std::isnan(outcome.output[o]));
            if (o < 12 && activation == Activation::none) CHECK(std::isnan(outcome.output[o]));
        }
        for (std::size_t o = 0; o < 12; ++o) CHECK(std::isnan(outcome.parameter_gradients[0][o * 20]));
    }
}
TEST_CASE_TEMPLATE_APPLY(linear_nan, DevicesAndElements);

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("child: a linear layer in bfloat16 without its instructions" * doctest::skip()) {
    const Case c{3, 5, 3};
    using D = DeviceAndElement<Host, BFloat16>;
    CHECK(message_of<DeviceError>([&] { static_cast<void>(run<D>(c, problem_of<D>(c, 1, 1))); }) ==
          text("bfloat16 linear layers need AVX-512 with BF16 or AMX; this processor has ", Host::library_isa(),
               ": train in float32"));
}

TEST_CASE("a linear layer in bfloat16 that oneDNN would emulate, or has only reference code for, is rejected") {
    for (const char* isa : {"AVX2", "AVX512_CORE_VNNI"}) {
        const ChildResult child =
            run_in_child("child: a linear layer in bfloat16 without its instructions", {{"ONEDNN_MAX_CPU_ISA", isa}});
        INFO(isa, child.output);
        CHECK(child.passed);
    }
}

TEST_CASE("a linear layer in bfloat16 rounds its weights to nearest") {
    if (!computes_bfloat16()) return;
    using D = DeviceAndElement<Host, BFloat16>;
    const Case c{17, 65, 63};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    Problem problem = problem_of<D>(c, seed, 2);
    problem.parameters[0] = reference::Random(seed + 1).normal(c.in * c.out);
    const Outcome outcome = run<D>(c, problem);
    problem.parameters[0] = rounded<D>(problem.parameters[0]);
    const Outcome rounded_before = run<D>(c, problem);
    CHECK(reference::same_bits(outcome.output, rounded_before.output));
    CHECK(reference::same_bits(outcome.input_gradient, rounded_before.input_gradient));
}

#endif
