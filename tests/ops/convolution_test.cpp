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
#include "operation_run.hpp"
#include "weighted_operation.hpp"

using convolution_cases::Case;
using namespace operation_run;

namespace {

struct Convolutions {
    using Case = convolution_cases::Case;
    /// On Cuda each element type has a third of the sparse cases: cuDNN makes plans for each of them.
    template <class D>
    static std::vector<Case> cases() {
        std::vector<Case> all = convolution_cases::dense_cases();
        const std::vector<Case> sparse = convolution_cases::sparse_cases();
        const std::size_t step = DeviceOf<D>::host_memory ? 1 : 3;
        const std::size_t first = step == 1 || std::is_same_v<ElementOf<D>, float> ? 0
                                  : std::is_same_v<ElementOf<D>, BFloat16>         ? 1
                                                                                   : 2;
        for (std::size_t i = first; i < sparse.size(); i += step) all.push_back(sparse[i]);
        return all;
    }
    static reference::Convolution oracle(const Case& c) {
        const auto axis = [&c](std::int64_t size, std::int64_t convolution_cases::Sides::*along) {
            const std::int64_t kernel = c.kernel.*along, stride = c.stride.*along, dilation = c.dilation.*along;
            return c.pad.*along >= 0            ? reference::padded(size, kernel, stride, c.pad.*along, false, dilation)
                   : c.padding == Padding::same ? reference::same(size, kernel, stride, dilation)
                                                : reference::valid(size, kernel, stride, dilation);
        };
        return {c.batch,
                axis(c.height, &convolution_cases::Sides::height),
                axis(c.width, &convolution_cases::Sides::width),
                c.in,
                c.out,
                c.groups};
    }
    template <class D>
    static Problem problem_of(const Case& c, std::uint64_t seed, int threads) {
        return operation_run::convolution_problem<D>(oracle(c), c.bias, seed, threads);
    }
    template <class D>
    static Outcome run(const Case& c, const Problem& problem) {
        return operation_run::run<D>(problem, [&](const auto& build) {
            return ops::Convolution<DeviceOf<D>, ElementOf<D>>(build, convolution_cases::shape_of(c));
        });
    }
    template <class D>
    static constexpr double weight_tolerance = operation_run::weight_gradient_tolerance<D>;
};

}  // namespace

TYPED_TEST_CASE("convolution, forward and backward, agrees with plain loops", D, DevicesAndElements) {
    weighted_operation::agrees<Convolutions, D>();
}

TYPED_TEST_CASE("a ReLU fused into a convolution agrees with plain loops", D, DevicesAndElements) {
    weighted_operation::fused_relu_agrees<Convolutions, D>();
}

TYPED_TEST_CASE("a convolution with a fused ReLU gives the bits of the separate operations", D, DevicesAndElements) {
    weighted_operation::fused_relu_has_bits<Convolutions, D>();
}

TYPED_TEST_CASE("a convolution with a fused ReLU6 gives the bits of the separate operations", D, DevicesAndElements) {
    weighted_operation::fused_relu6_has_bits<Convolutions, D>({3, 9, 7, 3, 16, 3, 1});
    Case without_bias{2, 6, 5, 16, 8, 3, 2};
    without_bias.bias = false;
    weighted_operation::fused_relu6_has_bits<Convolutions, D>(without_bias);
}

TYPED_TEST_CASE("a convolution whose ReLU mask is applied by the next operation does not apply it", D,
                DevicesAndElements) {
    weighted_operation::mask_applied_by_next<Convolutions, D>();
}

TYPED_TEST_CASE("a convolution adds to its parameters' gradients if `accumulate` is set", D, DevicesAndElements) {
    weighted_operation::adds_to_gradients<Convolutions, D>({Activation::none});
}

TYPED_TEST_CASE("a convolution skips an input gradient that is not needed", D, DevicesAndElements) {
#ifdef CUPOLA_TEST_CUDA
    constexpr bool packs = false;
#else
    constexpr bool packs = true;
#endif
    weighted_operation::skips_input_gradient<Convolutions, D>({3, 9, 7, 3, 16, 3, 1}, packs);
}

TYPED_TEST_CASE("a convolution made for evaluation computes the same output", D, DevicesAndElements) {
    for (const Case& c : Convolutions::cases<D>()) {
        INFO(describe(c));
        Problem problem = Convolutions::problem_of<D>(c, reference::fresh_seed(), 2);
        problem.activation = Activation::relu;
        const Outcome training = Convolutions::run<D>(c, problem);
        problem.made_for_training = problem.training = false;
        const Outcome inference = Convolutions::run<D>(c, problem);
        CHECK(reference::same_bits(inference.output, training.output));
        CHECK(inference.needs.packed <= training.needs.packed);
        CHECK(inference.needs.saved == 0);
    }
}

TYPED_TEST_CASE("a convolution propagates a NaN to its output, and with a ReLU to its weights' gradient", D,
                DevicesAndElements) {
    const Case c{2, 6, 6, 3, 16, 3, 1};
    for (const Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
        CAPTURE(static_cast<int>(activation));
        Problem problem = Convolutions::problem_of<D>(c, reference::fresh_seed(), 1);
        problem.activation = activation;
        problem.x[0] = std::numeric_limits<float>::quiet_NaN();
        const Outcome outcome = Convolutions::run<D>(c, problem);
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

#ifndef CUPOLA_TEST_CUDA

TEST_CASE("convolutions agree with plain loops for all kernels, strides, dilations, paddings and groups together") {
    using convolution_cases::Sides;
    for (const Sides kernel : {Sides(1), Sides(3), Sides(3, 5), Sides(2, 1)}) {
        for (const Sides stride : {Sides(1), Sides(2), Sides(2, 1)}) {
            for (const Sides dilation : {Sides(1), Sides(2), Sides(1, 3)}) {
                for (const int padding : {0, 1, 2}) {
                    for (const std::int64_t groups : {1, 2, 8}) {
                        Case c{1, 11, 13, 8, 16, kernel, stride, padding == 0 ? Padding::same : Padding::valid};
                        c.dilation = dilation;
                        c.groups = groups;
                        if (padding == 2) c.pad = {1, 2};
                        const std::uint64_t seed = reference::fresh_seed();
                        INFO(describe(c), ", seed ", seed);
                        const Problem problem = Convolutions::problem_of<Host>(c, seed, 1);
                        const Outcome outcome = Convolutions::run<Host>(c, problem);
                        weighted_operation::check_output<Convolutions, Host>(c, problem, outcome);
                        weighted_operation::check_gradients<Convolutions, Host>(c, problem, outcome, problem.dy);
                    }
                }
            }
        }
    }
}

TEST_CASE("child: a convolution that oneDNN 3.2 has without AVX2 by its reference code only" * doctest::skip()) {
    if (Host::library_version().substr(0, 4) != "3.2.") return;
    const Case c{1, 12, 6, 16, 1, 5, 1};
    CHECK(message_of<DeviceError>(
              [&] { static_cast<void>(Convolutions::run<Host>(c, Convolutions::problem_of<Host>(c, 1, 1))); }) ==
          text("oneDNN ", Host::library_version(),
               " has only its reference code (ref:any) for weight gradient of a convolution of this shape on this "
               "processor"));
}

TEST_CASE("a convolution that oneDNN would compute by its reference code is rejected") {
    check_in_child("child: a convolution that oneDNN 3.2 has without AVX2 by its reference code only",
                   {{"ONEDNN_MAX_CPU_ISA", "SSE41"}});
}

TEST_CASE("child: a convolution in bfloat16 without its instructions" * doctest::skip()) {
    const Case c{1, 12, 6, 16, 16, 5, 1};
    using D = DeviceAndElement<Host, BFloat16>;
    CHECK(message_of<DeviceError>([&] {
              static_cast<void>(Convolutions::run<D>(c, Convolutions::problem_of<D>(c, 1, 1)));
          }) == text("bfloat16 convolutions need AVX-512 with BF16 or AMX; this processor has ", Host::library_isa(),
                     ": train in float32"));
}

TEST_CASE("a convolution in bfloat16 that oneDNN would emulate, or has only reference code for, is rejected") {
    for (const char* isa : {"AVX2", "AVX512_CORE_VNNI"}) {
        check_in_child("child: a convolution in bfloat16 without its instructions", {{"ONEDNN_MAX_CPU_ISA", isa}});
    }
}

TEST_CASE("a convolution in bfloat16 rounds its weights to nearest, and does not round its sums") {
    if (!computes_bfloat16()) return;
    using D = DeviceAndElement<Host, BFloat16>;
    const Case c{2, 12, 12, 64, 64, 5, 1};
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    Problem problem = Convolutions::problem_of<D>(c, seed, 2);
    problem.parameters[0] = reference::Random(seed + 1).normal(Convolutions::oracle(c).weight_size());
    const Outcome outcome = Convolutions::run<D>(c, problem);
    problem.parameters[0] = operation_run::rounded<D>(problem.parameters[0]);
    const Outcome rounded_before = Convolutions::run<D>(c, problem);
    CHECK(reference::same_bits(outcome.output, rounded_before.output));
    CHECK(reference::same_bits(outcome.input_gradient, rounded_before.input_gradient));
    // 288 terms are added before a result is rounded: adding them in bfloat16 would be 10 times as far from the truth.
    CHECK(reference::distance(outcome.output, Convolutions::oracle(c).forward(problem.x, problem.parameters[0],
                                                                              problem.parameters[1])) < 2e-3);
}

#endif
