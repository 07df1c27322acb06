// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/host/convolution_algorithm.hpp
//
// Winograd's convolution against plain loops in double, and its guarantees beside the values.
#include "../test.hpp"

#include <cupola/ops/host/convolution.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

#include "../devices.hpp"
#include "../reference/convolution.hpp"
#include "../reference/relu.hpp"
#include "../throws_with.hpp"
#include "convolution_problem.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance;

namespace {

/// A whole image stays below 5e-6; an image of one pixel takes one output of a tile, whose rounding nothing averages.
constexpr double winograd_tolerance = 3e-5;

template <std::size_t T, std::size_t K>
struct Tiles {
    static constexpr std::size_t tile = T, kernel = K;
};
/// The chosen algorithms, and the one for comparison.
using AllTiles = std::tuple<Tiles<4, 5>, Tiles<4, 3>, Tiles<2, 5>>;

struct Case {
    std::int64_t batch, height, width, in, out, pad_begin, pad_end;
    bool bias = true;
};

template <class W>
std::string describe(const Case& c) {
    return text("F(", W::tile, ", ", W::kernel, "), batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.in,
                " -> ", c.out, ", padding ", c.pad_begin, " and ", c.pad_end, c.bias ? ", bias" : "");
}

template <class W>
reference::Convolution oracle(const Case& c) {
    const auto axis = [&](std::int64_t size) {
        const auto kernel = static_cast<std::int64_t>(W::kernel);
        return reference::Axis{size, kernel, 1, size + c.pad_begin + c.pad_end - kernel + 1, c.pad_begin, c.pad_end};
    };
    return {c.batch, axis(c.height), axis(c.width), c.in, c.out};
}

template <class W>
ConvolutionShape shape_of(const Case& c) {
    return operation_run::convolution_shape(oracle<W>(c), c.bias);
}

template <class W>
Problem problem_of(const Case& c, std::uint64_t seed, int threads) {
    return operation_run::convolution_problem<Host>(oracle<W>(c), c.bias, seed, threads);
}

template <class W>
Outcome run(const Case& c, const Problem& problem) {
    return operation_run::run<Host>(problem, [&](const BuildContext<Host>& build) {
        return ops::WinogradConvolution<W::tile, W::kernel>(build, shape_of<W>(c));
    });
}

/// Images smaller than a tile, and not a multiple of one; all channels that a block may have left over; more tiles than
/// a block has; few tiles, with more channels than fit a cache; padding as SAME and VALID have it, on one side only, and
/// wider than the filter.
template <class W>
std::vector<Case> cases() {
    const auto half = static_cast<std::int64_t>(W::kernel / 2);
    return {
        {3, 12, 12, 64, 64, half, half},       {1, 7, 9, 16, 16, half, half, false}, {17, 5, 6, 32, 48, 0, 0},
        {2, 13, 8, 48, 16, half, half},        {1, 1, 1, 16, 32, half, half},        {3, 6, 21, 16, 80, 0, 2 * half},
        {2, 9, 7, 80, 32, 2 * half, 0, false}, {2, 8, 5, 16, 16, 2 * half + 3, 1},   {1, 8, 8, 80, 112, half, half},
        {40, 16, 16, 16, 16, half, half}};
}

}  // namespace

TYPED_TEST_CASE("Winograd's convolution, forward and backward, agrees with plain loops", W, AllTiles) {
    for (const Case& c : cases<W>()) {
        for (const int threads : thread_counts<Host>()) {
            const std::uint64_t seed = reference::fresh_seed();
            INFO(describe<W>(c), ", threads ", threads, ", seed ", seed);
            const reference::Convolution r = oracle<W>(c);
            const Problem problem = problem_of<W>(c, seed, threads);
            const Floats &x = problem.x, &w = problem.parameters[0], &dy = problem.dy;
            const Floats b = c.bias ? problem.parameters[1] : Floats{};
            const Outcome outcome = run<W>(c, problem);
            CHECK(distance(outcome.output, r.forward(x, w, b)) < winograd_tolerance);
            CHECK(distance(outcome.input_gradient, r.input_gradient(dy, w)) < winograd_tolerance);
            CHECK(distance(outcome.parameter_gradients[0], r.weight_gradient(dy, x)) < winograd_tolerance);
            if (c.bias) CHECK(distance(outcome.parameter_gradients[1], r.bias_gradient(dy)) < reference::tolerance);
        }
    }
}

TYPED_TEST_CASE("a ReLU6 fused into Winograd's convolution gives the bits of the separate operations", W, AllTiles) {
    const Case c = cases<W>().front();
    const std::uint64_t seed = reference::fresh_seed();
    INFO(describe<W>(c), ", seed ", seed);
    Problem problem = problem_of<W>(c, seed, 2);
    for (float& x : problem.x) x *= 16.0F;
    Outcome apart = run<W>(c, problem);
    problem.activation = Activation::relu6;
    const Outcome fused = run<W>(c, problem);
    reference::apply_relu(apart.output, reference::most_of_relu6);
    CHECK(reference::same_bits(fused.output, apart.output));
    CHECK(std::ranges::count(fused.output, reference::most_of_relu6) > 0);
    problem.activation = Activation::none;
    problem.dy = reference::relu_mask(fused.output, problem.dy, reference::most_of_relu6);
    apart = run<W>(c, problem);
    CHECK(reference::same_bits(fused.input_gradient, apart.input_gradient));
    CHECK(reference::same_bits(fused.parameter_gradients[0], apart.parameter_gradients[0]));
}

TYPED_TEST_CASE("a ReLU fused into Winograd's convolution gives the bits of the separate operations", W, AllTiles) {
    for (const Case& c : cases<W>()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe<W>(c), ", seed ", seed);
        Problem problem = problem_of<W>(c, seed, 2);
        Outcome apart = run<W>(c, problem);
        problem.activation = Activation::relu;
        const Outcome fused = run<W>(c, problem);
        for (float& value : apart.output) value = value < 0.0F ? 0.0F : value;
        CHECK(reference::same_bits(fused.output, apart.output));

        problem.dy = reference::relu_mask(fused.output, problem.dy);
        problem.relu_mask_applied_by_next = true;
        const Outcome masked = run<W>(c, problem);
        problem.activation = Activation::none;
        apart = run<W>(c, problem);
        for (const Outcome* other : {&masked, &fused}) {
            CHECK(reference::same_bits(other->input_gradient, apart.input_gradient));
            for (std::size_t i = 0; i < apart.parameter_gradients.size(); ++i) {
                CHECK(reference::same_bits(other->parameter_gradients[i], apart.parameter_gradients[i]));
            }
        }
    }
}

TYPED_TEST_CASE("Winograd's convolution gives the same bits with any number of threads", W, AllTiles) {
    for (const Case& c : cases<W>()) {
        INFO(describe<W>(c));
        Problem problem = problem_of<W>(c, reference::fresh_seed(), 1);
        const Outcome one = run<W>(c, problem);
        // More than rows of points, so that output channels are shared out too.
        for (const int threads : sanitized ? std::vector<int>{20} : std::vector<int>{2, 3, 7, 20}) {
            CAPTURE(threads);
            problem.threads = threads;
            const Outcome several = run<W>(c, problem);
            CHECK(reference::same_bits(several.output, one.output));
            CHECK(reference::same_bits(several.input_gradient, one.input_gradient));
            for (std::size_t i = 0; i < one.parameter_gradients.size(); ++i) {
                CHECK(reference::same_bits(several.parameter_gradients[i], one.parameter_gradients[i]));
            }
        }
    }
}

TYPED_TEST_CASE("Winograd's convolution adds to its parameters' gradients if `accumulate` is set", W, AllTiles) {
    for (const Case& c : cases<W>()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe<W>(c), ", seed ", seed);
        Problem problem = problem_of<W>(c, seed, 2);
        const Outcome written = run<W>(c, problem);
        problem.accumulate = true;
        const Outcome added = run<W>(c, problem);
        for (std::size_t i = 0; i < written.parameter_gradients.size(); ++i) {
            Floats sum = problem.gradients_before[i];
            for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += written.parameter_gradients[i][k];
            CHECK(reference::same_bits(added.parameter_gradients[i], sum));
        }
        CHECK(reference::same_bits(added.input_gradient, written.input_gradient));
    }
}

TEST_CASE("Winograd's convolution needs less memory without gradients, or with only that of the weights") {
    using W = Tiles<4, 5>;
    const Case c{3, 9, 7, 64, 64, 2, 2};
    Problem problem = problem_of<W>(c, reference::fresh_seed(), 2);
    const Outcome full = run<W>(c, problem);
    for (const bool known_before : {true, false}) {
        problem.input_gradient = false;
        problem.made_for_input_gradient = !known_before;
        const Outcome outcome = run<W>(c, problem);
        for (const float value : outcome.input_gradient) CHECK(std::isnan(value));
        CHECK(reference::same_bits(outcome.output, full.output));
        CHECK(reference::same_bits(outcome.parameter_gradients[0], full.parameter_gradients[0]));
        if (known_before) CHECK(outcome.needs.packed < full.needs.packed);
    }
    problem.made_for_training = problem.training = false;
    const Outcome inference = run<W>(c, problem);
    CHECK(reference::same_bits(inference.output, full.output));
    CHECK(inference.needs.packed < full.needs.packed);
    CHECK(inference.needs.scratch < full.needs.scratch);
}

TEST_CASE("Winograd's convolution propagates a NaN to the tiles that read it and to no other image") {
    using W = Tiles<4, 3>;
    const Case c{2, 6, 6, 16, 16, 1, 1};
    for (const Activation activation : {Activation::none, Activation::relu}) {
        Problem problem = problem_of<W>(c, reference::fresh_seed(), 1);
        problem.activation = activation;
        problem.x[0] = std::numeric_limits<float>::quiet_NaN();
        const Outcome outcome = run<W>(c, problem);
        const std::size_t image = outcome.output.size() / 2;
        for (std::size_t o = 0; o < 16; ++o) CHECK(std::isnan(outcome.output[o]));
        for (std::size_t i = image; i < 2 * image; ++i) CHECK_FALSE(std::isnan(outcome.output[i]));
        bool gradient_has_one = false;
        for (const float value : outcome.parameter_gradients[0])
            gradient_has_one = gradient_has_one || std::isnan(value);
        CHECK(gradient_has_one);
    }
}

namespace {

ConvolutionShape same_shape(std::int64_t kernel, std::int64_t stride, std::int64_t in, std::int64_t out,
                            std::int64_t groups = 1, std::int64_t dilation = 1) {
    const WindowAxis axis = window_axis(12, kernel, stride, Padding::same, dilation);
    return {axis, axis, in, out, true, groups};
}

/// y, dx and dw of the convolution that a device with this option chooses.
std::vector<Floats> outcome_of(const ConvolutionAlgorithm* algorithm, const ConvolutionShape& shape, const Floats& x,
                               const Floats& w, const Floats& b, const Floats& dy) {
    HostContext context(0, {.threads = 2, .convolution = algorithm});
    ops::Convolution<Host, float> operation({.context = context,
                                             .batch = 1,
                                             .input = {shape.height.input, shape.width.input, shape.in_channels},
                                             .output = {shape.height.output, shape.width.output, shape.out_channels}},
                                            shape);
    const MemoryNeeds needs = memory_needs(operation);
    HostArena packed(needs.packed, "a test"), saved(needs.saved, "a test"), scratch(needs.scratch, "a test");
    Floats y(dy.size()), dx(x.size()), dw(w.size()), db(b.size()), gradient = dy;
    BackwardArgs<Host> args{{.context = context,
                             .input = x.data(),
                             .output = y.data(),
                             .parameters = {w.data(), b.data()},
                             .packed = packed.data(),
                             .saved = saved.data(),
                             .scratch = scratch.data()}};
    args.output_gradient = gradient.data();
    args.input_gradient = dx.data();
    args.parameter_gradients = {dw.data(), db.data()};
    operation.prepare(args);
    operation.forward(args);
    operation.backward(args);
    return std::vector<Floats>{y, dx, dw};
}

}  // namespace

TEST_CASE("Winograd's convolution supports which shapes it is for, and rejects the others") {
    using Five = ops::WinogradConvolution<4, 5>;
    CHECK(Five::supports(same_shape(5, 1, 64, 64)));
    CHECK(Five::supports(same_shape(5, 1, 16, 48)));
    CHECK_FALSE(Five::supports(same_shape(5, 2, 64, 64)));
    CHECK_FALSE(Five::supports(same_shape(3, 1, 64, 64)));
    CHECK_FALSE(Five::supports(same_shape(5, 1, 3, 64)));
    CHECK_FALSE(Five::supports(same_shape(5, 1, 64, 10)));
    ConvolutionShape oblong = same_shape(5, 1, 64, 64);
    oblong.width = window_axis(12, 3, 1, Padding::same);
    CHECK_FALSE(Five::supports(oblong));
    CHECK_FALSE(Five::supports(same_shape(5, 1, 64, 64, 4)));
    CHECK_FALSE(Five::supports(same_shape(5, 1, 64, 64, 1, 2)));
    ConvolutionShape dilated = same_shape(5, 1, 64, 64);
    dilated.width.dilation = 2;
    CHECK_FALSE(Five::supports(dilated));

    HostContext context(0, {});
    const BuildContext<Host> build{.context = context, .batch = 1, .input = {12, 12, 3}, .output = {6, 6, 64}};
    CHECK(message_of<Error>([&] { Five(build, same_shape(5, 2, 3, 64, 3)); }) ==
          "F(4 x 4, 5 x 5) is for stride 1, filters of 5 x 5 taps and multiples of 16 channels without groups or "
          "dilation, not for strides 2 and 2, 5 x 5 taps, 3 to 64 channels, groups: 3, dilation: 1 and 1");
}

TEST_CASE("a device with the Winograd option uses it for the shapes that it supports") {
    struct Asked {
        std::int64_t kernel, stride, in, out;
        bool taken;
        std::int64_t groups = 1, dilation = 1;
    };
    for (const Asked asked :
         {Asked{5, 1, 64, 64, true}, Asked{3, 1, 64, 64, true}, Asked{5, 1, 3, 64, false}, Asked{3, 2, 64, 64, false},
          Asked{1, 1, 64, 64, false}, Asked{3, 1, 64, 64, false, 4}, Asked{5, 1, 64, 64, false, 1, 2}}) {
        INFO(asked.kernel, " taps, stride ", asked.stride, ", ", asked.in, " channels, groups ", asked.groups,
             ", dilation ", asked.dilation);
        const ConvolutionShape shape =
            same_shape(asked.kernel, asked.stride, asked.in, asked.out, asked.groups, asked.dilation);
        const std::int64_t size = shape.height.output;
        reference::Random random(reference::fresh_seed());
        const Floats x = random.normal(12 * 12 * asked.in), w = random.normal(shape.weights()),
                     b = random.normal(asked.out), dy = random.normal(size * size * asked.out);
        const auto outcome = [&](const ConvolutionAlgorithm* algorithm) {
            return outcome_of(algorithm, shape, x, w, b, dy);
        };
        const auto direct = outcome(nullptr), chosen = outcome(&winograd);
        for (std::size_t i = 0; i < direct.size(); ++i) {
            CHECK(reference::same_bits(direct[i], chosen[i]) != asked.taken);
            CHECK(distance(chosen[i], direct[i]) < 2 * reference::tolerance);
        }
    }
}

TEST_CASE("outside training the Winograd option is for shapes with enough tiles for their filters") {
    struct Asked {
        std::int64_t size, kernel, channels, batch;
        bool taken, with_avx512;
    };
    // The convolutions of ResNet-44, ResNet-50 and the tutorial network.
    for (const Asked& asked :
         {Asked{32, 3, 16, 1, true, true}, Asked{16, 3, 32, 1, true, true}, Asked{8, 3, 64, 1, true, false},
          Asked{8, 3, 64, 128, true, true}, Asked{56, 3, 64, 1, true, true}, Asked{28, 3, 128, 1, true, true},
          Asked{14, 3, 256, 1, true, true}, Asked{7, 3, 512, 1, false, false}, Asked{7, 3, 512, 128, true, true},
          Asked{12, 5, 64, 1, true, true}, Asked{12, 5, 64, 128, true, true}}) {
        const WindowAxis axis = window_axis(asked.size, asked.kernel, 1, Padding::same);
        const ConvolutionShape shape{axis, axis, asked.channels, asked.channels, false};
        INFO(asked.size, " x ", asked.size, " x ", asked.channels, ", ", asked.kernel, " taps, batch ", asked.batch);
        CHECK(impl::winograd_saves_time(shape, asked.batch, 4, 8) == asked.taken);
        CHECK(impl::winograd_saves_time(shape, asked.batch, 4, 16) == asked.with_avx512);
        const bool expected = impl::winograd_saves_time(shape, asked.batch, 4);
        for (const int threads : {1, 3}) {
            HostContext context(0, {.threads = threads});
            BuildContext<Host> build{.context = context,
                                     .batch = asked.batch,
                                     .input = {asked.size, asked.size, asked.channels},
                                     .output = {asked.size, asked.size, asked.channels},
                                     .training = false,
                                     .inference = true};
            CHECK((winograd.make(build, shape) != nullptr) == expected);
            build.inference = false;
            CHECK(winograd.make(build, shape) != nullptr);
        }
    }
}

TEST_CASE("the estimates of a convolution's time are those of their formulas") {
    const WindowAxis axis = window_axis(8, 3, 1, Padding::same);
    const impl::ForwardEstimates few = impl::forward_estimates({axis, axis, 64, 64, false}, 1, 4, 16);
    CHECK(few.direct == doctest::Approx(9 * 64 + 9 * 8));
    CHECK(few.winograd == doctest::Approx(36 * 4 * (1.4 + 10 / 32.0) + 36 * 16));
    const impl::ForwardEstimates many = impl::forward_estimates({axis, axis, 128, 64, false}, 3, 4, 8);
    CHECK(many.direct == doctest::Approx(9 * 192 + 9 * 8));
    CHECK(many.winograd == doctest::Approx(36 * 12 * (1.4 + 30 / 128.0) + 36 * 8));
}

TEST_CASE("a device with the Winograd option has errors of at most 5e-6 in planes of any size") {
    for (const std::int64_t kernel : {3, 5}) {
        for (const auto& size : {std::pair{1, 1}, {3, 3}, {3, 9}, {9, 2}, {4, 4}, {4, 5}, {5, 7}, {6, 6}}) {
            const std::int64_t height = size.first, width = size.second;  // clang 16 captures no bindings in OpenMP
            const std::uint64_t seed = reference::fresh_seed();
            INFO(kernel, " taps, ", height, " x ", width, ", seed ", seed);
            const reference::Convolution r{1, reference::same(height, kernel, 1), reference::same(width, kernel, 1), 16,
                                           16};
            const ConvolutionShape shape{window_axis(height, kernel, 1, Padding::same),
                                         window_axis(width, kernel, 1, Padding::same), 16, 16, true};
            reference::Random random(seed);
            const Floats x = random.normal(height * width * 16), w = random.normal(kernel * kernel * 16 * 16),
                         b = random.normal(16), dy = random.normal(height * width * 16);
            const auto chosen = outcome_of(&winograd, shape, x, w, b, dy);
            CHECK(distance(chosen[0], r.forward(x, w, b)) < 5e-6);
            CHECK(distance(chosen[1], r.input_gradient(dy, w)) < 5e-6);
            CHECK(distance(chosen[2], r.weight_gradient(dy, x)) < 5e-6);
            const bool is_direct = reference::same_bits(chosen[1], outcome_of(nullptr, shape, x, w, b, dy)[1]);
            CHECK(is_direct == (height < 4 || width < 4));
        }
    }
}
