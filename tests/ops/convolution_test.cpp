// SPDX-License-Identifier: Apache-2.0
//
// Convolution against plain loops in double, and its guarantees beside the values.
#include "../test.hpp"

#include <cupola/ops/convolution.hpp>

#include "../child_process.hpp"
#include "../devices.hpp"
#include "../instructions.hpp"
#include "../reference/convolution.hpp"
#include "../reference/relu.hpp"
#include "../throws_with.hpp"
#include "convolution_cases.hpp"
#include "convolution_problem.hpp"
#include "fused_relu.hpp"
#include "operation_run.hpp"

using namespace cupola;
using convolution_cases::Case;
using convolution_cases::cases;
using convolution_cases::describe;
using convolution_cases::shape_of;
using operation_run::Outcome;
using operation_run::Problem;
using operation_run::rounded;
using operation_run::tolerance;
using operation_run::weight_gradient_tolerance;
using reference::added_to_first;
using reference::bias_gradient_of;
using reference::distance;
using reference::distance_of_sums;
using reference::distance_of_sums_at;
using reference::Floats;
using reference::forward_of;
using reference::input_gradient_of;
using reference::magnitudes;
using reference::weight_gradient_of;

namespace {

reference::Convolution oracle(const Case& c) {
    const auto axis = c.padding == Padding::same ? reference::same : reference::valid;
    return {c.batch, axis(c.height, c.kernel, c.stride), axis(c.width, c.kernel, c.stride), c.in, c.out};
}

template <class D>
Problem problem_of(const Case& c, std::uint64_t seed, int threads) {
    return operation_run::convolution_problem<D>(oracle(c), c.bias, seed, threads);
}

template <class D>
Outcome run(const Case& c, const Problem& problem) {
    return operation_run::run<D>(
        problem, [&](const auto& build) { return ops::Convolution<DeviceOf<D>, ElementOf<D>>(build, shape_of(c)); });
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("convolution, forward and backward, agrees with plain loops", D, convolution_agrees) {
    for (const Case& c : cases()) {
        for (const int threads : thread_counts<D>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(c), ", threads ", threads, ", seed ", seed);
            const reference::Convolution r = oracle(c);
            const Problem problem = problem_of<D>(c, seed, threads);
            const Floats &x = problem.x, &w = problem.parameters[0], &dy = problem.dy;
            const Floats b = c.bias ? problem.parameters[1] : Floats{};
            const Outcome outcome = run<D>(c, problem);
            CHECK(distance_of_sums(outcome.output, forward_of(r), x, w, b) < tolerance<D>);
            CHECK(distance_of_sums(outcome.input_gradient, input_gradient_of(r), dy, w) < tolerance<D>);
            CHECK(distance_of_sums(outcome.parameter_gradients[0], weight_gradient_of(r), dy, x) <
                  weight_gradient_tolerance<D>);
            if (c.bias)
                CHECK(distance_of_sums(outcome.parameter_gradients[1], bias_gradient_of(r), dy) < reference::tolerance);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_agrees, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a ReLU fused into a convolution agrees with plain loops", D, convolution_relu_agrees) {
    for (const Case& c : cases()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        const reference::Convolution r = oracle(c);
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
        CHECK(distance_of_sums(outcome.parameter_gradients[0], weight_gradient_of(r), dy, x) <
              weight_gradient_tolerance<D>);
        if (c.bias)
            CHECK(distance_of_sums(outcome.parameter_gradients[1], bias_gradient_of(r), dy) < reference::tolerance);
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_relu_agrees, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a convolution with a fused ReLU gives the bits of the separate operations", D,
                          convolution_relu_bits) {
    for (const Case& c : cases()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        fused_relu::check_bits(problem_of<D>(c, seed, 2), [&](const Problem& problem) { return run<D>(c, problem); });
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_relu_bits, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a convolution whose ReLU mask is applied by the next operation does not apply it", D,
                          convolution_masked) {
    for (const Case& c : cases()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        fused_relu::check_mask_applied_by_next(problem_of<D>(c, seed, 2),
                                               [&](const Problem& problem) { return run<D>(c, problem); });
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_masked, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a convolution adds to its parameters' gradients if `accumulate` is set", D,
                          convolution_adds) {
    for (const Case& c : cases()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        const reference::Convolution r = oracle(c);
        Problem problem = problem_of<D>(c, seed, 2);
        problem.accumulate = true;
        const Outcome outcome = run<D>(c, problem);
        CHECK(distance_of_sums(outcome.parameter_gradients[0], added_to_first(weight_gradient_of(r)),
                               problem.gradients_before[0], problem.dy, problem.x) < weight_gradient_tolerance<D>);
        if (c.bias)
            CHECK(distance_of_sums(outcome.parameter_gradients[1], added_to_first(bias_gradient_of(r)),
                                   problem.gradients_before[1], problem.dy) < reference::tolerance);
        CHECK(distance_of_sums(outcome.input_gradient, input_gradient_of(r), problem.dy, problem.parameters[0]) <
              tolerance<D>);
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_adds, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a convolution skips an input gradient that is not needed", D, convolution_null) {
    const Case c{3, 9, 7, 3, 16, 3, 1};
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
#ifndef CUPOLA_TEST_CUDA  // Host packs the weights for each direction
        if (known_before) CHECK(outcome.needs.packed < full.needs.packed);
#endif
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_null, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a convolution made for evaluation computes the same output", D, convolution_inference) {
    for (const Case& c : cases()) {
        INFO(describe(c));
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 2);
        problem.activation = Activation::relu;
        const Outcome training = run<D>(c, problem);
        problem.made_for_training = problem.training = false;
        const Outcome inference = run<D>(c, problem);
        CHECK(reference::same_bits(inference.output, training.output));
        CHECK(inference.needs.packed <= training.needs.packed);
        CHECK(inference.needs.saved == 0);
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_inference, DevicesAndElements);

TEST_CASE_TEMPLATE_DEFINE("a convolution propagates a NaN to its output, and with a ReLU to its weights' gradient", D,
                          convolution_nan) {
    const Case c{2, 6, 6, 3, 16, 3, 1};
    for (const Activation activation : {Activation::none, Activation::relu}) {
        CAPTURE(static_cast<int>(activation));
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
        problem.activation = activation;
        problem.x[0] = std::numeric_limits<float>::quiet_NaN();
        const Outcome outcome = run<D>(c, problem);
        const std::size_t half = outcome.output.size() / 2;
        // The first sample's corner sees it (a vendor's fused ReLU may make it zero), the second sample does not.
        for (std::size_t o = 0; o < 16 && activation == Activation::none; ++o) CHECK(std::isnan(outcome.output[o]));
        for (std::size_t i = half; i < 2 * half; ++i) CHECK_FALSE(std::isnan(outcome.output[i]));
        bool gradient_has_one = false;
        for (const float value : outcome.parameter_gradients[0])
            gradient_has_one = gradient_has_one || std::isnan(value);
        CHECK(gradient_has_one);
    }
}
TEST_CASE_TEMPLATE_APPLY(convolution_nan, DevicesAndElements);

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("child: a convolution that oneDNN 3.2 has without AVX2 by its reference code only" * doctest::skip()) {
    if (Host::library_version().substr(0, 4) != "3.2.") return;
    const Case c{1, 12, 6, 16, 1, 5, 1};
    CHECK(message_of<DeviceError>([&] { static_cast<void>(run<Host>(c, problem_of<Host>(c, 1, 1))); }) ==
          text("oneDNN ", Host::library_version(),
               " has only its reference code (ref:any) for weight gradient of a convolution of this shape on this "
               "processor"));
}

TEST_CASE("a convolution that oneDNN would compute by its reference code is rejected") {
    const ChildResult child =
        run_in_child("child: a convolution that oneDNN 3.2 has without AVX2 by its reference code only",
                     {{"ONEDNN_MAX_CPU_ISA", "SSE41"}});
    INFO(child.output);
    CHECK(child.passed);
}

TEST_CASE("child: a convolution in bfloat16 without its instructions" * doctest::skip()) {
    const Case c{1, 12, 6, 16, 16, 5, 1};
    using D = DeviceAndElement<Host, BFloat16>;
    CHECK(message_of<DeviceError>([&] { static_cast<void>(run<D>(c, problem_of<D>(c, 1, 1))); }) ==
          text("bfloat16 convolutions need AVX-512 with BF16 or AMX; this processor has ", Host::library_isa(),
               ": train in float32"));
}

TEST_CASE("a convolution in bfloat16 that oneDNN would emulate, or has only reference code for, is rejected") {
    for (const char* isa : {"AVX2", "AVX512_CORE_VNNI"}) {
        const ChildResult child =
            run_in_child("child: a convolution in bfloat16 without its instructions", {{"ONEDNN_MAX_CPU_ISA", isa}});
        INFO(isa, child.output);
        CHECK(child.passed);
    }
}

TEST_CASE("a convolution in bfloat16 rounds its weights to nearest, and does not round its sums") {
    if (!computes_bfloat16()) return;
    using D = DeviceAndElement<Host, BFloat16>;
    const Case c{2, 12, 12, 64, 64, 5, 1};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    Problem problem = problem_of<D>(c, seed, 2);
    problem.parameters[0] = reference::Random(seed + 1).normal(oracle(c).weight_size());
    const Outcome outcome = run<D>(c, problem);
    problem.parameters[0] = rounded<D>(problem.parameters[0]);
    const Outcome rounded_before = run<D>(c, problem);
    CHECK(reference::same_bits(outcome.output, rounded_before.output));
    CHECK(reference::same_bits(outcome.input_gradient, rounded_before.input_gradient));
    // 288 terms are added before a result is rounded: adding them in bfloat16 would be 10 times as far from the truth.
    CHECK(distance(outcome.output, oracle(c).forward(problem.x, problem.parameters[0], problem.parameters[1])) < 2e-3);
}

#endif
