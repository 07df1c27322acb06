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
#include "operation_run.hpp"
#include "weighted_operation.hpp"

using namespace operation_run;

namespace {

struct Linears {
    struct Case {
        std::int64_t batch, in, out;
        bool bias = true;
    };
    friend std::string describe(const Case& c) {
        return text("batch ", c.batch, ", ", c.in, " -> ", c.out, c.bias ? ", bias" : "");
    }
    template <class D>
    static std::vector<Case> cases() {
        std::vector<Case> all{{1, 1, 1},
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
        // Host has code of its own for many weights and a few samples. In the emulator, where these take longest, float
        // is enough.
        if (emulated && !std::same_as<ElementOf<D>, float>)
            std::erase_if(all, [](const Case& c) { return c.in * c.out > 500'000; });
        return all;
    }
    static reference::Linear oracle(const Case& c) {
        return {static_cast<std::size_t>(c.batch), static_cast<std::size_t>(c.in), static_cast<std::size_t>(c.out)};
    }

    template <class D>
    static Problem problem_of(const Case& c, std::uint64_t seed, int threads) {
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
    static Outcome run(const Case& c, const Problem& problem) {
        return operation_run::run<D>(problem, [&](const auto& build) {
            return ops::Linear<DeviceOf<D>, ElementOf<D>>(build, LinearShape{c.in, c.out, c.bias});
        });
    }
    template <class D>
    static constexpr double weight_tolerance = reference::tolerance;
};
using Case = Linears::Case;

}  // namespace

TYPED_TEST_CASE("a linear layer, forward and backward, agrees with plain loops", D, DevicesAndElements) {
    weighted_operation::agrees<Linears, D>();
}

TYPED_TEST_CASE("outside training a linear layer agrees with plain loops, with a fused ReLU and without", D,
                DevicesAndElements) {
    weighted_operation::for_each_case<Linears, D>([](const Case& c, std::uint64_t seed) {
        for (const int threads : thread_counts<D>()) {
            CAPTURE(threads);
            Problem problem = Linears::problem_of<D>(c, seed, threads);
            problem.made_for_training = problem.training = false;
            for (const Activation activation : {Activation::none, Activation::relu}) {
                problem.activation = activation;
                weighted_operation::check_output<Linears, D>(c, problem, Linears::run<D>(c, problem));
            }
        }
    });
}

TYPED_TEST_CASE("a ReLU fused into a linear layer agrees with plain loops", D, DevicesAndElements) {
    weighted_operation::fused_relu_agrees<Linears, D>();
}

TYPED_TEST_CASE("a linear layer with a fused ReLU gives the bits of the separate operations", D, DevicesAndElements) {
    weighted_operation::fused_relu_has_bits<Linears, D>();
}

TYPED_TEST_CASE("a linear layer whose ReLU mask is applied by the next operation does not apply it", D,
                DevicesAndElements) {
    weighted_operation::mask_applied_by_next<Linears, D>();
}

TYPED_TEST_CASE("a linear layer adds to its parameters' gradients if `accumulate` is set", D, DevicesAndElements) {
    weighted_operation::adds_to_gradients<Linears, D>({Activation::none, Activation::relu});
}

TYPED_TEST_CASE("a linear layer skips an input gradient that is not needed", D, DevicesAndElements) {
    weighted_operation::skips_input_gradient<Linears, D>({5, 33, 17}, false);
}

TYPED_TEST_CASE("a linear layer made for evaluation computes the same output, except where it computes row by row", D,
                DevicesAndElements) {
    for (const Case& c : Linears::cases<D>()) {
        if (std::same_as<ElementOf<D>, float> && c.batch <= 16) continue;
        INFO(describe(c));
        Problem problem = Linears::problem_of<D>(c, reference::fresh_seed(), 2);
        problem.activation = Activation::relu;
        const Outcome training = Linears::run<D>(c, problem);
        problem.made_for_training = problem.training = false;
        CHECK(reference::same_bits(Linears::run<D>(c, problem).output, training.output));
    }
}

TYPED_TEST_CASE("the bias gradient of a linear layer has the same bits for 1 and 2 threads", D, DevicesAndElements) {
    const Case c{129, 8, 200};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const Outcome one = Linears::run<D>(c, Linears::problem_of<D>(c, seed, 1)),
                  two = Linears::run<D>(c, Linears::problem_of<D>(c, seed, 2));
    CHECK(reference::same_bits(one.parameter_gradients[1], two.parameter_gradients[1]));
}

TYPED_TEST_CASE("a linear layer propagates a NaN to its output, and with a ReLU to its weights' gradient", D,
                DevicesAndElements) {
    const Case c{4, 20, 12};
    for (const Activation activation : {Activation::none, Activation::relu}) {
        CAPTURE(static_cast<int>(activation));
        Problem problem = Linears::problem_of<D>(c, reference::fresh_seed(), 1);
        problem.activation = activation;
        problem.x[0] = std::numeric_limits<float>::quiet_NaN();
        const Outcome outcome = Linears::run<D>(c, problem);
        for (std::size_t o = 0; o < 48; ++o) {
            if (o >= 12) CHECK_FALSE(std::isnan(outcome.output[o]));
            if (o < 12 && activation == Activation::none) CHECK(std::isnan(outcome.output[o]));
        }
        for (std::size_t o = 0; o < 12; ++o) CHECK(std::isnan(outcome.parameter_gradients[0][o * 20]));
    }
}

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("child: a linear layer in bfloat16 without its instructions" * doctest::skip()) {
    const Case c{3, 5, 3};
    using D = DeviceAndElement<Host, BFloat16>;
    CHECK(message_of<DeviceError>([&] { static_cast<void>(Linears::run<D>(c, Linears::problem_of<D>(c, 1, 1))); }) ==
          text("bfloat16 linear layers need AVX-512 with BF16 or AMX; this processor has ", Host::library_isa(),
               ": train in float32"));
}

TEST_CASE("a linear layer in bfloat16 that oneDNN would emulate, or has only reference code for, is rejected") {
    for (const char* isa : {"AVX2", "AVX512_CORE_VNNI"}) {
        check_in_child("child: a linear layer in bfloat16 without its instructions", {{"ONEDNN_MAX_CPU_ISA", isa}});
    }
}

TEST_CASE("a linear layer in bfloat16 rounds its weights to nearest") {
    if (!computes_bfloat16()) return;
    using D = DeviceAndElement<Host, BFloat16>;
    const Case c{17, 65, 63};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    Problem problem = Linears::problem_of<D>(c, seed, 2);
    problem.parameters[0] = reference::Random(seed + 1).normal(c.in * c.out);
    const Outcome outcome = Linears::run<D>(c, problem);
    problem.parameters[0] = rounded<D>(problem.parameters[0]);
    const Outcome rounded_before = Linears::run<D>(c, problem);
    CHECK(reference::same_bits(outcome.output, rounded_before.output));
    CHECK(reference::same_bits(outcome.input_gradient, rounded_before.input_gradient));
}

#endif
