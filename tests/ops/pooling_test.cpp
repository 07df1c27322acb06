// SPDX-License-Identifier: Apache-2.0
//
// Pooling against plain loops in double, with ties and padding, and PyTorch's figures.
#include "../test.hpp"

#include <cupola/ops/pooling.hpp>

#include "../child_process.hpp"
#include "../devices.hpp"
#include "../reference/pooling.hpp"
#include "../reference/relu.hpp"
#include "../throws_with.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance;

namespace {

/// A window along the width that differs from that along the height.
struct AcrossCase {
    std::int64_t window, stride, pad;
};

struct Case {
    PoolingKind kind;
    std::int64_t batch, height, width, channels, window, stride;
    Padding padding = Padding::same;
    std::int64_t pad = -1;  // on each side, instead of `padding`
    bool counts_padding = false, ceil_mode = false;
    std::optional<AcrossCase> across{};
};

std::string describe(const Case& c) {
    return text(
        c.kind == PoolingKind::max ? "max" : "average", ", batch ", c.batch, ", ", c.height, " x ", c.width, " x ",
        c.channels, ", window ", c.window, ", stride ", c.stride,
        c.pad >= 0 ? text(", pad ", c.pad, c.counts_padding ? ", counted" : "")
                   : text(c.padding == Padding::same ? ", same" : ", valid"),
        c.ceil_mode ? ", ceil mode" : "",
        c.across ? text(", across ", c.across->window, ", stride ", c.across->stride, ", pad ", c.across->pad) : "");
}

reference::Pooling oracle(const Case& c) {
    const auto axis = [&](std::int64_t size, const AcrossCase& w) {
        if (w.pad >= 0) return reference::padded(size, w.window, w.stride, w.pad, c.ceil_mode);
        return c.padding == Padding::same ? reference::same(size, w.window, w.stride)
                                          : reference::valid(size, w.window, w.stride);
    };
    const AcrossCase down{c.window, c.stride, c.pad};
    return {c.batch,    axis(c.height, down),       axis(c.width, c.across.value_or(down)),
            c.channels, c.kind == PoolingKind::max, c.counts_padding};
}

template <class D>
Problem problem_of(const Case& c, std::uint64_t seed, int threads, bool ties = false) {
    const reference::Pooling r = oracle(c);
    reference::Random random(seed);
    Problem problem;
    problem.input = {c.height, c.width, c.channels};
    problem.output = {r.height.output, r.width.output, c.channels};
    problem.batch = c.batch;
    problem.threads = threads;
    problem.x = rounded<D>(ties ? random.ties(r.input_size()) : random.normal(r.input_size()));
    problem.dy = rounded<D>(random.normal(r.output_size()));
    return problem;
}

template <class D>
Outcome run(const Case& c, const Problem& problem) {
    const auto axis = [&](std::int64_t size, const AcrossCase& w) {
        return w.pad >= 0 ? window_axis(size, w.window, w.stride, w.pad, c.ceil_mode)
                          : window_axis(size, w.window, w.stride, c.padding);
    };
    const AcrossCase down{c.window, c.stride, c.pad};
    const PoolingShape shape{axis(c.height, down), axis(c.width, c.across.value_or(down)), c.channels, c.kind,
                             c.counts_padding};
    return operation_run::run<D>(
        problem, [&](const auto& build) { return ops::Pooling<DeviceOf<D>, ElementOf<D>>(build, shape); });
}

/// How far the gradient is from the oracle's, less what rounding may have changed. oneDNN adds the gradients of windows
/// that overlap in the element type: bfloat16 rounds each of up to 25 additions by at most 2^-8 of the sum, which has a
/// deviation of 0.4 times 2^-8 of the terms' magnitudes; the norm over the 25 inputs and more that such windows share
/// comes nowhere near 2^-8.
template <class D>
double gradient_distance(const Case& c, const Problem& problem, const Outcome& outcome) {
    const reference::Pooling r = oracle(c);
    const reference::Doubles expected = r.input_gradient(problem.dy, problem.x),
                             terms = r.input_gradient(reference::magnitudes(problem.dy), problem.x);
    if constexpr (std::is_same_v<ElementOf<D>, BFloat16>)
        return reference::distance_of_sums_at(expected, outcome.input_gradient, expected, terms, 0x1p-8);
    return reference::distance_of_sums_at(expected, outcome.input_gradient, expected, [&] { return terms; });
}

std::vector<Case> cases() {
    std::vector<Case> result;
    const std::vector<std::int64_t> channels{64, 1, 3, 40, 16}, batches{1, 3, 17};
    const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{7, 9},  {8, 5},   {5, 5}, {12, 6},
                                                                   {6, 13}, {24, 24}, {9, 8}};
    std::size_t i = 0;
    for (const PoolingKind kind : {PoolingKind::max, PoolingKind::average}) {
        for (const std::int64_t window : {1, 2, 3, 5}) {
            for (const std::int64_t stride : {1, 2, 3}) {
                for (const Padding padding : {Padding::same, Padding::valid}) {
                    const auto [height, width] = sizes[i % sizes.size()];
                    result.push_back({kind, batches[i % 3], height, width, channels[i % 5], window, stride, padding});
                    ++i;
                }
            }
        }
        result.push_back({kind, 2, 24, 24, 64, 3, 2});  // the tutorial's
        result.push_back({kind, 2, 6, 6, 10, 6, 6, Padding::valid});
        result.push_back({kind, 1, 1, 1, 3, 1, 1});
        for (const std::int64_t window : {2, 3, 5}) {
            for (const std::int64_t stride : {1, 2, 3}) {
                for (std::int64_t pad = 1; pad <= window / 2; ++pad) {
                    const auto [height, width] = sizes[i % sizes.size()];
                    for (const bool counted : {true, false}) {
                        if (counted && kind == PoolingKind::max) continue;
                        result.push_back({kind, batches[i % 2], height, width, channels[i % 5], window, stride,
                                          Padding::same, pad, counted});
                    }
                    ++i;
                }
            }
        }
    }
    return result;
}

}  // namespace

TYPED_TEST_CASE("pooling, forward and backward, agrees with plain loops", D, DevicesAndElements) {
    for (const Case& c : cases()) {
        for (const int threads : thread_counts<D>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe(c), ", threads ", threads, ", seed ", seed);
            const reference::Pooling r = oracle(c);
            const Problem problem = problem_of<D>(c, seed, threads);
            const Outcome outcome = run<D>(c, problem);
            CHECK(distance(outcome.output, r.forward(problem.x)) < tolerance<D>);
            CHECK(gradient_distance<D>(c, problem, outcome) < tolerance<D>);
        }
    }
}

TYPED_TEST_CASE("pooling with all of PyTorch's options agrees with plain loops", D, DevicesAndElements) {
    constexpr std::int64_t sizes[] = {5, 7, 4, 9, 2, 6}, channels[] = {5, 16, 1, 64};
    std::vector<AcrossCase> windows;
    for (const std::int64_t window : {2, 3})
        for (const std::int64_t stride : {1, 2, 3})
            for (const std::int64_t pad : {0, 1}) windows.push_back({window, stride, pad});
    std::size_t i = 0;
    for (const bool ceil_mode : {false, true}) {
        for (const auto& [window, stride, pad] : windows) {
            for (const auto& [kind, counted] :
                 {std::pair(PoolingKind::max, false), std::pair(PoolingKind::average, false),
                  std::pair(PoolingKind::average, true)}) {
                ++i;
                const Case c{.kind = kind,
                             .batch = static_cast<std::int64_t>(i % 3 + 1),
                             .height = sizes[i % 6] + window - 1,
                             .width = sizes[i % 5] + 1,
                             .channels = channels[i % 4],
                             .window = window,
                             .stride = stride,
                             .pad = pad,
                             .counts_padding = counted,
                             .ceil_mode = ceil_mode,
                             .across = windows[(5 * i + 1) % windows.size()]};
                const std::uint64_t seed = reference::fresh_seed();
                INFO(describe(c), ", seed ", seed);
                const reference::Pooling r = oracle(c);
                const Problem problem = problem_of<D>(c, seed, 2, kind == PoolingKind::max);
                const Outcome outcome = run<D>(c, problem);
                CHECK(distance(outcome.output, r.forward(problem.x)) < tolerance<D>);
                CHECK(gradient_distance<D>(c, problem, outcome) < tolerance<D>);
            }
        }
    }
}

TYPED_TEST_CASE("pooling with all of PyTorch's options gives PyTorch's values", D, DevicesAndElements) {
    // Of torch.arange(1., 17).reshape(1, 1, 4, 4) with kernel (3, 2), stride (2, 3) and padding (1, 1). Rounded up there
    // is one row more; a third column would begin in the padding on the right.
    const auto output = [](PoolingKind kind, bool counted, bool ceil_mode) {
        const Case c{.kind = kind,
                     .batch = 1,
                     .height = 4,
                     .width = 4,
                     .channels = 1,
                     .window = 3,
                     .stride = 2,
                     .pad = 1,
                     .counts_padding = counted,
                     .ceil_mode = ceil_mode,
                     .across = AcrossCase{2, 3, 1}};
        Problem problem = problem_of<D>(c, 1, 1);
        for (std::size_t i = 0; i < problem.x.size(); ++i) problem.x[i] = static_cast<float>(i + 1);
        return run<D>(c, problem).output;
    };
    const auto is = [](const Floats& values, const Floats& expected) {
        CHECK(values.size() == expected.size());
        CHECK(distance(values, reference::Doubles(expected.begin(), expected.end())) < tolerance<D>);
    };
    constexpr PoolingKind max = PoolingKind::max, average = PoolingKind::average;
    is(output(max, false, false), {5, 8, 13, 16});
    is(output(max, false, true), {5, 8, 13, 16, 13, 16});
    is(output(average, false, false), {3, 5.5F, 9, 11.5F});
    is(output(average, false, true), {3, 5.5F, 9, 11.5F, 13, 15.5F});
    is(output(average, true, false), {1, 3.6666667F, 4.5F, 11.5F});
    is(output(average, true, true), {1, 3.6666667F, 4.5F, 11.5F, 3.25F, 7.75F});
}

TYPED_TEST_CASE("the gradient of a maximum goes to the first of equal ones in row order", D, DevicesAndElements) {
    for (const Case& c : cases()) {
        if (c.kind != PoolingKind::max) continue;
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        const reference::Pooling r = oracle(c);
        const Problem problem = problem_of<D>(c, seed, 2, true);
        const Outcome outcome = run<D>(c, problem);
        CHECK(distance(outcome.output, r.forward(problem.x)) == 0);
        CHECK(gradient_distance<D>(c, problem, outcome) < tolerance<D>);
    }
}

TYPED_TEST_CASE("a maximum applies the mask of a ReLU before it", D, DevicesAndElements) {
    for (const Case& c : cases()) {
        if (c.kind != PoolingKind::max) continue;
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        Problem problem = problem_of<D>(c, seed, 2, true);  // what comes out of a ReLU
        const Outcome plain = run<D>(c, problem);
        problem.applies_relu_mask_of_previous = true;
        const Outcome masking = run<D>(c, problem);
        CHECK(reference::same_bits(masking.output, plain.output));
        CHECK(reference::same_bits(masking.input_gradient, reference::relu_mask(problem.x, plain.input_gradient)));
    }
}

TYPED_TEST_CASE("a maximum of more than 15 rows is trained correctly, or refused", D, DevicesAndElements) {
    const Case c{PoolingKind::max, 1, 17, 19, 3, 16, 3};
    const Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    if constexpr (std::is_same_v<ElementOf<D>, BFloat16> && std::is_same_v<DeviceOf<D>, Host>) {
        CHECK(contains(message_of<InvalidArgument>([&] { run<D>(c, problem); }),
                       "can be trained with windows of at most 15 x 15, not 16 x 16"));
    } else {
        CHECK(gradient_distance<D>(c, problem, run<D>(c, problem)) < tolerance<D>);
    }
}

TYPED_TEST_CASE("padding is never the maximum, even of negative numbers", D, DevicesAndElements) {
    for (const std::int64_t pad : {-1, 1}) {
        const Case c{PoolingKind::max, 2, 5, 5, 16, 3, 2, Padding::same, pad};
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
        for (float& value : problem.x) value = -1.0F - std::abs(value);
        problem.x = rounded<D>(problem.x);
        const Outcome outcome = run<D>(c, problem);
        CHECK(distance(outcome.output, oracle(c).forward(problem.x)) == 0);
        for (const float value : outcome.output) CHECK(value <= -1.0F);
    }
}

TYPED_TEST_CASE("padding is not part of a mean", D, DevicesAndElements) {
    const Case c{PoolingKind::average, 2, 5, 7, 16, 3, 2};
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    for (float& value : problem.x) value = 1.0F;
    for (const float value : run<D>(c, problem).output) CHECK(value == doctest::Approx(1.0));
}

TYPED_TEST_CASE("padding that counts is a part of each mean at the border", D, DevicesAndElements) {
    const Case c{PoolingKind::average, 1, 4, 4, 1, 3, 2, Padding::same, 1, true};
    Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
    for (float& value : problem.x) value = 9.0F;
    CHECK(run<D>(c, problem).output == Floats{4, 6, 6, 9});
}

TYPED_TEST_CASE("pooling skips an input gradient that is not needed", D, DevicesAndElements) {
    for (const PoolingKind kind : {PoolingKind::max, PoolingKind::average}) {
        for (const bool known_before : {true, false}) {
            CAPTURE(known_before);
            const Case c{kind, 2, 6, 6, 16, 3, 2};
            Problem problem = problem_of<D>(c, reference::fresh_seed(), 1);
            problem.input_gradient = false;
            problem.made_for_input_gradient = !known_before;
            const Outcome outcome = run<D>(c, problem);
            for (const float value : outcome.input_gradient) CHECK(std::isnan(value));
            CHECK(distance(outcome.output, oracle(c).forward(problem.x)) < tolerance<D>);
        }
    }
}

TYPED_TEST_CASE("pooling made for evaluation computes the same output and saves nothing", D, DevicesAndElements) {
    for (const Case& c : cases()) {
        INFO(describe(c));
        Problem problem = problem_of<D>(c, reference::fresh_seed(), 2);
        const Outcome training = run<D>(c, problem);
        problem.made_for_training = problem.training = false;
        const Outcome inference = run<D>(c, problem);
        CHECK(reference::same_bits(inference.output, training.output));
        CHECK(inference.needs.saved == 0);
    }
}

#ifndef CUPOLA_TEST_CUDA

TYPED_TEST_CASE("a maximum of what comes out of a ReLU is right next to any other number", D, DevicesAndElements) {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::int64_t channels : {64, 40}) {
        for (const std::int64_t window : {2, 3}) {
            for (const float other : {-1.0F, -0.0F, infinity, -infinity, nan, -nan}) {
                const Case c{PoolingKind::max, 2, 7, 11, channels, window, 2};
                const std::uint64_t seed = reference::fresh_seed();
                INFO(describe(c), ", ", other, ", seed ", seed);
                Problem problem = problem_of<D>(c, seed, 2, true);
                Floats ordered = problem.x;  // a NaN is the largest, and the largest finite number stands for it here
                for (std::size_t i = seed % 499; i < ordered.size(); i += 499) {
                    problem.x[i] = other;
                    ordered[i] = std::isnan(other) ? std::numeric_limits<float>::max() : other;
                }
                const Outcome outcome = run<D>(c, problem);
                const reference::Doubles expected = oracle(c).forward(ordered);
                const auto as_expected = [](float value, double is) {
                    return is == double{std::numeric_limits<float>::max()} ? std::isnan(value) : double{value} == is;
                };
                CHECK(std::ranges::equal(outcome.output, expected, as_expected));
                problem.x = ordered;
                CHECK(gradient_distance<D>(c, problem, outcome) < tolerance<D>);
            }
        }
    }
}

TEST_CASE("child: pooling in bfloat16 without its instructions" * doctest::skip()) {
    const Case c{PoolingKind::average, 2, 6, 6, 16, 3, 2};
    using D = DeviceAndElement<Host, BFloat16>;
    CHECK(message_of<DeviceError>([&] { static_cast<void>(run<D>(c, problem_of<D>(c, 1, 1))); }) ==
          text("bfloat16 pooling needs AVX-512 with BF16 or AMX; this processor has ", Host::library_isa(),
               ": train in float32"));
}

TEST_CASE("mean pooling in bfloat16 that oneDNN would emulate, or has only reference code for, is rejected") {
    check_in_child("child: pooling in bfloat16 without its instructions", {{"ONEDNN_MAX_CPU_ISA", "AVX2"}});
}

#endif
