// SPDX-License-Identifier: Apache-2.0
//
// The weight gradients of convolutions by our own kernels, inside the operation that uses them, against plain loops in
// double: in float with few channels, in bfloat16 on AMX. Without AMX oneDNN is tested in the same way.
#include "../test.hpp"

#include <cupola/ops/host/convolution.hpp>
#include <cupola/ops/host/weight_gradient.hpp>

#include "../child_process.hpp"
#include "../devices.hpp"
#include "../instructions.hpp"
#include "../reference/convolution.hpp"
#include "convolution_problem.hpp"
#include "operation_run.hpp"

using namespace operation_run;
using reference::distance;

namespace {

using D = DeviceAndElement<Host, BFloat16>;

struct Case {
    std::int64_t batch, height, width, in, out, window_height, window_width, stride = 1, pad_begin = 0, pad_end = 0;
    bool bias = true;
};

std::string describe(const Case& c) {
    return text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.in, " -> ", c.out, ", window ",
                c.window_height, " x ", c.window_width, ", stride ", c.stride, ", padding ", c.pad_begin, " and ",
                c.pad_end, c.bias ? ", bias" : "");
}

reference::Convolution oracle(const Case& c) {
    const auto axis = [&](std::int64_t size, std::int64_t window) {
        return reference::Axis{
            size, window, c.stride, (size + c.pad_begin + c.pad_end - window) / c.stride + 1, c.pad_begin, c.pad_end};
    };
    return {c.batch, axis(c.height, c.window_height), axis(c.width, c.window_width), c.in, c.out};
}

ConvolutionShape shape_of(const Case& c) { return operation_run::convolution_shape(oracle(c), c.bias); }

Problem problem_of(const Case& c, std::uint64_t seed, int threads) {
    return operation_run::convolution_problem<D>(oracle(c), c.bias, seed, threads);
}

Outcome run(const Case& c, const Problem& problem) {
    return operation_run::run<D>(
        problem, [&](const auto& build) { return ops::Convolution<Host, BFloat16>(build, shape_of(c)); });
}

bool is_ours(const Case& c, int threads = 1) {
    HostContext context(0, {.threads = threads});
    const BuildContext<Host, BFloat16> build{
        .context = context, .batch = c.batch, .input = {c.height, c.width, c.in}, .output = {1, 1, c.out}};
    return make_weight_gradient(build, shape_of(c)) != nullptr;
}

/// The shape with groups, and with dilation of one axis and of the other.
std::vector<ConvolutionShape> sparse_shapes(const ConvolutionShape& shape) {
    std::vector<ConvolutionShape> result{shape, shape, shape};
    result[0].groups = 2;
    result[1].height.dilation = 2;
    result[2].width.dilation = 2;
    return result;
}

bool has_amx() {
    if (is_ours({32, 8, 8, 64, 64, 3, 3, 1, 1, 1})) return true;
    MESSAGE("no AMX here: what follows is computed by oneDNN");
    return false;
}

/// Channels that are whole tiles and that are not, more than a block of rows, batches that leave a tile's images over,
/// images smaller than the filter, filters with all numbers of taps from 1 to 7, strides, and padding on one side only.
std::vector<Case> cases() {
    return {
        {32, 5, 6, 64, 64, 5, 5, 1, 2, 2},
        {32, 12, 12, 16, 32, 5, 5, 1, 2, 2},
        {33, 3, 4, 64, 16, 3, 3, 1, 1, 1},
        {17, 4, 3, 64, 48, 3, 3, 1, 1, 1, false},
        {57, 7, 5, 16, 5, 3, 3, 1, 1, 1},
        {64, 8, 8, 32, 32, 3, 3, 1, 1, 1},
        {31, 8, 9, 3, 64, 5, 5, 1, 2, 2},
        {32, 30, 30, 3, 16, 3, 3, 1, 1, 1},
        {32, 20, 22, 16, 16, 3, 3, 1, 1, 1},
        {32, 9, 8, 16, 16, 3, 3, 2, 0, 1},
        {28, 9, 8, 5, 20, 5, 5, 2, 1, 2, false},
        {32, 13, 11, 32, 16, 3, 5, 3, 1, 1},
        {32, 13, 11, 6, 16, 2, 3, 3, 1, 1},
        {32, 9, 7, 32, 16, 4, 3},
        {32, 6, 8, 20, 50, 2, 6},
        {32, 7, 9, 16, 1, 1, 7, 1, 0, 1},
        {32, 9, 7, 1, 1, 7, 1, 1, 1, 0},
        {32, 8, 4, 48, 33, 3, 2, 1, 0, 1},
        {32, 2, 2, 16, 16, 5, 5, 1, 2, 2},
        {32, 1, 1, 16, 16, 3, 3, 1, 1, 1},
        {30, 1, 1, 3, 5, 3, 3, 1, 1, 1},
        {32, 4, 4, 16, 16, 3, 3, 1, 2, 0},
        {32, 4, 4, 7, 16, 3, 3, 1, 0, 2},
    };
}

}  // namespace

TEST_CASE("weight gradients in bfloat16 agree with plain loops") {
    if (!computes_bfloat16()) return;
    const bool ours = has_amx();
    for (const Case& c : cases()) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        CHECK(is_ours(c) == ours);
        const reference::Convolution r = oracle(c);
        Problem problem = problem_of(c, seed, 1);
        const reference::Doubles dw = r.weight_gradient(problem.dy, problem.x), db = r.bias_gradient(problem.dy);
        reference::Doubles dw_added = dw, db_added = db;
        for (std::size_t i = 0; i < dw.size(); ++i) dw_added[i] += static_cast<double>(problem.gradients_before[0][i]);
        for (std::size_t i = 0; c.bias && i < db.size(); ++i)
            db_added[i] += static_cast<double>(problem.gradients_before[1][i]);
        for (const int threads : {1, 2, 3}) {
            CAPTURE(threads);
            problem.threads = threads;
            problem.accumulate = false;
            const Outcome written = run(c, problem);
            CHECK(distance(written.parameter_gradients[0], dw) < reference::tolerance);
            if (c.bias) CHECK(distance(written.parameter_gradients[1], db) < reference::tolerance);
            problem.accumulate = true;
            const Outcome added = run(c, problem);
            CHECK(distance(added.parameter_gradients[0], dw_added) < reference::tolerance);
            if (c.bias) CHECK(distance(added.parameter_gradients[1], db_added) < reference::tolerance);
        }
    }
}

TEST_CASE("a weight gradient in bfloat16 has the same bits in every operation of as many threads") {
    if (!computes_bfloat16()) return;
    for (const Case& c : {Case{64, 5, 6, 64, 64, 5, 5, 1, 2, 2}, Case{64, 9, 7, 3, 16, 5, 5, 1, 2, 2}}) {
        INFO(describe(c));
        for (const int threads : {1, 2, 3}) {
            CAPTURE(threads);
            const Problem problem = problem_of(c, 7, threads);
            const Outcome once = run(c, problem), again = run(c, problem);
            CHECK(reference::same_bits(once.parameter_gradients[0], again.parameter_gradients[0]));
            CHECK(reference::same_bits(once.parameter_gradients[1], again.parameter_gradients[1]));
        }
    }
}

TEST_CASE("a weight gradient in bfloat16 shows a NaN of either operand, in its channel and in no other") {
    if (!computes_bfloat16()) return;
    const Case c{32, 6, 6, 16, 32, 3, 3, 1, 1, 1};
    for (const bool in_input : {true, false}) {
        CAPTURE(in_input);
        Problem problem = problem_of(c, reference::fresh_seed(), 2);
        // The second channel of a pixel in the middle, which every tap sees.
        Floats& values = in_input ? problem.x : problem.dy;
        values[static_cast<std::size_t>((6 * 3 + 3) * (in_input ? c.in : c.out) + 1)] =
            std::numeric_limits<float>::quiet_NaN();
        const Outcome outcome = run(c, problem);
        const Floats& dw = outcome.parameter_gradients[0];
        for (std::size_t i = 0; i < dw.size(); ++i) {
            const std::size_t o = i / (9 * 16), in = i % 16;
            CHECK(std::isnan(dw[i]) == (in_input ? in == 1 : o == 1));
        }
        for (std::size_t o = 0; o < 32; ++o)
            CHECK(std::isnan(outcome.parameter_gradients[1][o]) == (!in_input && o == 1));
    }
}

TEST_CASE("a weight gradient is computed by Cupola where that is faster, and by oneDNN elsewhere") {
    if (!computes_bfloat16() || !has_amx()) return;
    CHECK(is_ours({128, 24, 24, 3, 64, 5, 5, 1, 2, 2}));
    CHECK(is_ours({64, 12, 12, 64, 64, 5, 5, 1, 2, 2}));
    CHECK(is_ours({100, 8, 8, 64, 64, 3, 3, 1, 1, 1}));
    CHECK_FALSE(is_ours({100, 32, 32, 16, 16, 3, 3, 1, 1, 1}));  // a fifth of the last tile's images is missing
    CHECK_FALSE(is_ours({8, 12, 12, 64, 64, 5, 5, 1, 2, 2}));
    CHECK_FALSE(is_ours({1, 24, 24, 3, 64, 5, 5, 1, 2, 2}));
    CHECK_FALSE(is_ours({128, 8, 8, 64, 64, 1, 1}));
    CHECK_FALSE(is_ours({128, 8, 8, 3, 64, 1, 5}));
    // The kernel has neither groups nor dilation.
    HostContext one(0, {.threads = 1});
    const BuildContext<Host, BFloat16> of_64{
        .context = one, .batch = 64, .input = {12, 12, 64}, .output = {12, 12, 64}};
    for (const ConvolutionShape& shape : sparse_shapes(shape_of({64, 12, 12, 64, 64, 5, 5, 1, 2, 2})))
        CHECK(make_weight_gradient(of_64, shape) == nullptr);
    // In float it is oneDNN's, or that of the algorithm in the device's options.
    HostContext context(0, {});
    const BuildContext<Host> build{.context = context, .batch = 128, .input = {8, 8, 64}, .output = {8, 8, 64}};
    CHECK(make_weight_gradient(build, shape_of({128, 8, 8, 64, 64, 3, 3, 1, 1, 1})) == nullptr);
}

TEST_CASE("child: a weight gradient in bfloat16 where oneDNN is told to do without AMX" * doctest::skip()) {
    CHECK_FALSE(is_ours({32, 8, 8, 64, 64, 3, 3, 1, 1, 1}));
}

TEST_CASE("a weight gradient in bfloat16 is computed by oneDNN where AMX is disabled for oneDNN") {
    if (!computes_bfloat16()) return;
    check_in_child("child: a weight gradient in bfloat16 where oneDNN is told to do without AMX",
                   {{"ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"}});
}

namespace {

using InFloat = DeviceAndElement<Host, float>;

/// Few channels of the input; one, few and many outputs; all with and without padding, strides and bias; points.
std::vector<Case> narrow_cases() {
    return {
        {2, 9, 7, 1, 16, 3, 3, 1, 1, 1},
        {1, 5, 6, 1, 8, 5, 5, 1, 2, 2, false},
        {3, 40, 33, 2, 20, 3, 3, 1, 1, 1},
        {2, 8, 9, 1, 17, 3, 2, 2, 0, 1},
        {1, 1, 1, 1, 9, 3, 3, 1, 1, 1},
        {70, 4, 3, 2, 8, 1, 1},
        {2, 13, 11, 16, 4, 1, 1},
        {1, 3, 5, 8, 1, 1, 1},
        {3, 40, 31, 37, 15, 1, 1, 1, 0, 0, false},
        {130, 2, 2, 2, 8, 2, 2},
        {2, 6, 6, 1, 8, 4, 4, 3, 1, 2},
        {2, 24, 23, 2, 64, 5, 5, 1, 2, 2},
        {70, 4, 3, 2, 8, 3, 3, 1, 1, 1},
        {1, 3, 300, 2, 16, 3, 3, 1, 1, 1},
        {1, 5, 900, 2, 16, 1, 9, 2, 4, 4, false},
    };
}

/// Images of three and four channels, which are Cupola's where a vector has at least eight numbers.
std::vector<Case> image_cases() {
    return {
        {3, 24, 24, 3, 64, 5, 5, 1, 2, 2},
        {2, 32, 32, 3, 16, 3, 3, 1, 1, 1},
        {1, 45, 38, 3, 64, 7, 7, 2, 2, 3, false},
        {2, 9, 11, 4, 50, 5, 5, 2, 0, 1},
        {1, 7, 7, 3, 17, 7, 7},
    };
}

Outcome run_in_float(const Case& c, const Problem& problem) {
    return operation_run::run<InFloat>(
        problem, [&](const auto& build) { return ops::Convolution<Host, float>(build, shape_of(c)); });
}

bool is_ours_in_float(const Case& c) {
    HostContext context(0, {.threads = 1});
    const BuildContext<Host> build{
        .context = context, .batch = c.batch, .input = {c.height, c.width, c.in}, .output = {1, 1, c.out}};
    return make_weight_gradient(build, shape_of(c)) != nullptr;
}

}  // namespace

TEST_CASE("weight gradients in float with few channels agree with plain loops, and do not depend on the threads") {
    std::vector<Case> all = narrow_cases();
    for (const Case& c : image_cases()) all.push_back(c);
    for (const Case& c : all) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        const bool ours = c.in < 3 || c.in > 4 || impl::lane_count >= 8;
        CHECK(is_ours_in_float(c) == ours);
        const reference::Convolution r = oracle(c);
        Problem problem = operation_run::convolution_problem<InFloat>(r, c.bias, seed, 1);
        const reference::Doubles dw = r.weight_gradient(problem.dy, problem.x), db = r.bias_gradient(problem.dy);
        reference::Doubles dw_added = dw, db_added = db;
        for (std::size_t i = 0; i < dw.size(); ++i) dw_added[i] += static_cast<double>(problem.gradients_before[0][i]);
        for (std::size_t i = 0; c.bias && i < db.size(); ++i)
            db_added[i] += static_cast<double>(problem.gradients_before[1][i]);
        Outcome of_one_thread;
        for (const int threads : {1, 2, 3}) {
            CAPTURE(threads);
            problem.threads = threads;
            problem.accumulate = false;
            const Outcome written = run_in_float(c, problem);
            CHECK(distance(written.parameter_gradients[0], dw) < reference::tolerance);
            if (c.bias) CHECK(distance(written.parameter_gradients[1], db) < reference::tolerance);
            if (threads == 1) of_one_thread = written;
            if (ours) CHECK(reference::same_bits(written.parameter_gradients[0], of_one_thread.parameter_gradients[0]));
            problem.accumulate = true;
            const Outcome added = run_in_float(c, problem);
            CHECK(distance(added.parameter_gradients[0], dw_added) < reference::tolerance);
            if (c.bias) CHECK(distance(added.parameter_gradients[1], db_added) < reference::tolerance);
        }
    }
    CHECK_FALSE(is_ours_in_float({128, 24, 24, 5, 64, 5, 5, 1, 2, 2}));
    CHECK_FALSE(is_ours_in_float({128, 24, 24, 3, 8, 5, 5, 1, 2, 2}));
    CHECK_FALSE(is_ours_in_float({8, 224, 224, 3, 64, 11, 11, 4, 2, 2}));
    CHECK_FALSE(is_ours_in_float({8, 16, 16, 16, 16, 1, 1}));
    CHECK_FALSE(is_ours_in_float({8, 16, 16, 16, 4, 1, 1, 2}));
    CHECK_FALSE(is_ours_in_float({8, 16, 16, 1, 4, 3, 3, 1, 1, 1}));
}

namespace {

/// A depthwise convolution: windows of 3, 5 and 7 columns, more and fewer rows; strides, dilation, padding of one side;
/// windows that are larger than the image; images of several bands of rows; more images than parts.
struct DepthwiseCase {
    std::int64_t batch, channels;
    reference::Axis height, width;
    bool bias = true;
};

std::vector<DepthwiseCase> depthwise_cases() {
    using reference::padded;
    return {
        {2, 32, padded(9, 7, 1, 3), padded(11, 7, 1, 3)},
        {11, 16, padded(6, 5, 2, 2), padded(7, 5, 2, 2)},
        {1, 48, padded(8, 5, 1, 0), padded(9, 3, 3, 2), false},
        {3, 16, padded(10, 3, 1, 2, false, 2), padded(9, 3, 1, 3, false, 3)},
        {2, 16, padded(13, 3, 2, 4, false, 4), padded(12, 5, 1, 4, false, 2), false},
        {1, 16, padded(3, 7, 1, 3), padded(2, 7, 1, 3)},
        {1, 16, padded(9, 1, 1, 0), padded(300, 7, 1, 3)},
        {2, 16, padded(70, 5, 1, 2), padded(190, 7, 2, 3)},
    };
}

template <class D>
Outcome run_depthwise(const reference::Convolution& r, bool bias, const Problem& problem) {
    return operation_run::run<D>(problem, [&](const auto& build) {
        return ops::Convolution<Host, ElementOf<D>>(build, operation_run::convolution_shape(r, bias));
    });
}

template <class D>
void check_depthwise() {
    std::vector<DepthwiseCase> all = depthwise_cases();
    if (!std::same_as<ElementOf<D>, float>) {  // oneDNN's in float
        all.push_back({2, 32, reference::padded(8, 3, 1, 1), reference::padded(9, 3, 1, 1)});
        all.push_back({3, 16, reference::padded(7, 3, 2, 1), reference::padded(10, 3, 2, 1), false});
    }
    for (const DepthwiseCase& c : all) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO("batch ", c.batch, ", ", c.height.input, " x ", c.width.input, " x ", c.channels, ", window ",
             c.height.kernel, " x ", c.width.kernel, ", seed ", seed);
        const reference::Convolution r{c.batch, c.height, c.width, c.channels, c.channels, c.channels};
        using Kernel = impl::DepthwiseWeightGradient<ElementOf<D>>;
        const bool ours = impl::lane_count > 4;
        CHECK(Kernel::suits(operation_run::convolution_shape(r, c.bias)) == ours);
        Problem problem = operation_run::convolution_problem<D>(r, c.bias, seed, 1);
        const reference::Doubles dw = r.weight_gradient(problem.dy, problem.x), db = r.bias_gradient(problem.dy);
        Outcome of_one_thread;
        for (const int threads : {1, 2, 3}) {
            CAPTURE(threads);
            problem.threads = threads;
            problem.accumulate = false;
            const Outcome written = run_depthwise<D>(r, c.bias, problem);
            CHECK(distance(written.parameter_gradients[0], dw) < reference::tolerance);
            if (c.bias) CHECK(distance(written.parameter_gradients[1], db) < reference::tolerance);
            if (threads == 1) of_one_thread = written;
            for (std::size_t p = 0; ours && p < written.parameter_gradients.size(); ++p)
                CHECK(reference::same_bits(written.parameter_gradients[p], of_one_thread.parameter_gradients[p]));
            problem.accumulate = true;
            const Outcome added = run_depthwise<D>(r, c.bias, problem);
            for (std::size_t p = 0; ours && p < written.parameter_gradients.size(); ++p) {
                Floats sum = problem.gradients_before[p];
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += written.parameter_gradients[p][i];
                CHECK(reference::same_bits(added.parameter_gradients[p], sum));
            }
        }
    }
}

}  // namespace

TEST_CASE("weight gradients of depthwise convolutions agree with plain loops, and do not depend on the threads") {
    check_depthwise<InFloat>();
    if (computes_bfloat16()) check_depthwise<D>();
}

TEST_CASE(
    "a weight gradient of a depthwise convolution shows a NaN where an output reads it, and multiplies no padding") {
    const reference::Convolution r{2, reference::padded(9, 5, 1, 2), reference::padded(8, 5, 1, 2), 16, 16, 16};
    for (const bool in_input : {true, false}) {
        CAPTURE(in_input);
        Problem problem = operation_run::convolution_problem<InFloat>(r, true, reference::fresh_seed(), 2);
        // The second channel of the first pixel: only the taps from the middle on read it, or pair it with a pixel.
        (in_input ? problem.x : problem.dy)[1] = std::numeric_limits<float>::infinity();
        const Outcome outcome = run_depthwise<InFloat>(r, true, problem);
        const Floats& dw = outcome.parameter_gradients[0];
        for (std::size_t i = 0; i < dw.size(); ++i) {
            const std::size_t channel = i / 25, row = i % 25 / 5, column = i % 5;
            const bool reads = in_input ? row <= 2 && column <= 2 : row >= 2 && column >= 2;
            CHECK(std::isfinite(dw[i]) == !(channel == 1 && reads));
        }
    }
}

TEST_CASE("a weight gradient of a depthwise convolution is computed by oneDNN where that is faster") {
    using reference::padded;
    const auto suits = [](const reference::Convolution& r) {
        return impl::DepthwiseWeightGradient<float>::suits(operation_run::convolution_shape(r, true));
    };
    const reference::Axis five = padded(9, 5, 1, 2), three = padded(9, 3, 1, 1);
    CHECK(suits({1, five, five, 32, 32, 32}) == (impl::lane_count > 4));
    CHECK_FALSE(suits({1, three, three, 32, 32, 32}));
    CHECK_FALSE(suits({1, five, three, 32, 32, 32}));
    CHECK(suits({1, three, padded(9, 3, 1, 2), 32, 32, 32}) == (impl::lane_count > 4));
    CHECK_FALSE(suits({1, five, five, 20, 20, 20}));  // no whole registers
    CHECK_FALSE(suits({1, five, five, 32, 64, 32}));  // two outputs per input
    CHECK_FALSE(suits({1, five, five, 32, 32, 16}));  // two inputs per group
    CHECK_FALSE(suits({1, padded(9, 11, 1, 5), five, 32, 32, 32}));
    CHECK_FALSE(suits({1, five, padded(9, 9, 1, 4), 32, 32, 32}));
    CHECK_FALSE(suits({1, five, padded(3000, 5, 1, 2), 32, 32, 32}));  // rows of five are more than its copy holds
}

TEST_CASE("a weight gradient in float of a convolution with groups or dilation is computed by oneDNN") {
    for (const Case& c : {Case{2, 9, 7, 2, 16, 3, 3, 1, 1, 1}, Case{2, 13, 11, 16, 4, 1, 1}}) {
        INFO(describe(c));
        CHECK(impl::NarrowWeightGradient::suits(shape_of(c)));
        for (const ConvolutionShape& shape : sparse_shapes(shape_of(c)))
            CHECK_FALSE(impl::NarrowWeightGradient::suits(shape));
    }
}

TEST_CASE("weight gradients of a convolution with ReLU have the same bits where its mask is applied in their pass") {
    std::vector<Case> all = image_cases();
    all.push_back({3, 6, 7, 2, 21, 3, 3, 1, 1, 1});
    all.push_back({2, 13, 11, 16, 4, 1, 1});
    for (const Case& c : all) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        const reference::Convolution r = oracle(c);
        Problem problem = operation_run::convolution_problem<InFloat>(r, c.bias, seed, 2);
        problem.activation = Activation::relu;
        const Outcome before = run_in_float(c, problem);
        problem.input_gradient = problem.made_for_input_gradient = false;
        const Outcome in_pass = run_in_float(c, problem);
        for (std::size_t i = 0; i < before.parameter_gradients.size(); ++i)
            CHECK(reference::same_bits(in_pass.parameter_gradients[i], before.parameter_gradients[i]));
        Floats dy = problem.dy;
        for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = before.output[i] > 0.0F ? dy[i] : 0.0F;
        CHECK(distance(in_pass.parameter_gradients[0], r.weight_gradient(dy, problem.x)) < reference::tolerance);
    }
}

namespace {

/// The gradients by the kernel itself, for shapes that it is not chosen for too: weight, then bias. Checks that it writes
/// nothing beyond its scratch memory, which begins as NaN.
Floats narrow_gradients(const Case& c, const Floats& x, const Floats& dy, int threads) {
    const impl::NarrowWeightGradient kernel(shape_of(c), c.batch);
    HostContext context(0, {.threads = threads});
    const auto team = context.team();
    const auto weights = static_cast<std::size_t>(oracle(c).weight_size());
    Floats gradients(weights + static_cast<std::size_t>(c.out), 7.0F);
    constexpr std::size_t guard = 64;
    HostArena scratch(kernel.scratch_bytes() + guard * sizeof(float), "the test's scratch memory");
    const std::span all(reinterpret_cast<float*>(scratch.data()), kernel.scratch_bytes() / sizeof(float) + guard);
    std::ranges::fill(all, std::numeric_limits<float>::quiet_NaN());
    kernel.run(context, x.data(), dy.data(), nullptr, gradients.data(), gradients.data() + weights, false,
               scratch.data());
    for (const float value : all.last(guard)) CHECK(std::isnan(value));
    return gradients;
}

Floats followed_by(reference::Doubles first, const reference::Doubles& second) {
    first.insert(first.end(), second.begin(), second.end());
    return Floats(first.begin(), first.end());
}

}  // namespace

TEST_CASE("weight gradients of images of few channels agree with plain loops for all numbers of output channels") {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    for (std::int64_t out = 1; out <= 65; ++out) {
        const std::int64_t window = std::array{1, 3, 5, 7}[static_cast<std::size_t>(out % 4)];
        const Case c{.batch = 1 + out % 7,
                     .height = 5 + out % 9,
                     .width = 3 + out % 11,
                     .in = 1 + out / 4 % 4,
                     .out = out,
                     .window_height = std::min(window, 5 + out % 9),
                     .window_width = std::min(window, 3 + out % 11),
                     .stride = 1 + out / 2 % 2,
                     .pad_begin = out / 3 % 2 * (window / 2),
                     .pad_end = out / 5 % 2 * (window / 2)};
        INFO(describe(c));
        const reference::Convolution r = oracle(c);
        const Problem problem = operation_run::convolution_problem<InFloat>(r, true, seed, 1);
        const Floats one = narrow_gradients(c, problem.x, problem.dy, 1);
        const std::span weight(one.data(), static_cast<std::size_t>(r.weight_size()));
        CHECK(distance(weight, r.weight_gradient(problem.dy, problem.x)) < reference::tolerance);
        CHECK(distance(std::span(one).last(static_cast<std::size_t>(out)), r.bias_gradient(problem.dy)) <
              reference::tolerance);
        for (const int threads : {2, 3})
            CHECK(reference::same_bits(narrow_gradients(c, problem.x, problem.dy, threads), one));
    }
}

TEST_CASE("a NaN or an infinity of an image or a gradient is in the weights that see it, and in no other") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    for (const Case& c : {Case{2, 6, 7, 3, 20, 5, 5, 1, 2, 2}, Case{1, 9, 8, 2, 33, 3, 3, 2, 1, 1},
                          Case{1, 5, 5, 1, 3, 3, 3, 1, 0, 1}}) {
        INFO(describe(c));
        const reference::Convolution r = oracle(c);
        for (const float value : {nan, infinity, -infinity}) {
            for (const bool in_input : {true, false}) {
                CAPTURE(value);
                CAPTURE(in_input);
                Problem problem = operation_run::convolution_problem<InFloat>(r, true, 3, 1);
                // The first and the last pixel, of which the windows at the edges see only some weights' products.
                Floats& values = in_input ? problem.x : problem.dy;
                values.front() = values.back() = value;
                const Floats got = narrow_gradients(c, problem.x, problem.dy, 2);
                const Floats wanted =
                    followed_by(r.weight_gradient(problem.dy, problem.x), r.bias_gradient(problem.dy));
                for (std::size_t i = 0; i < wanted.size(); ++i) {
                    CHECK(std::isnan(got[i]) == std::isnan(wanted[i]));
                    CHECK((got[i] == infinity) == (wanted[i] == infinity));
                    CHECK((got[i] == -infinity) == (wanted[i] == -infinity));
                }
            }
        }
    }
}
