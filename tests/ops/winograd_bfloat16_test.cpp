// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/host/winograd_convolution.hpp
//
// Winograd's convolution in bfloat16: its error is that of rounding the exact result, and of the direct convolution.
// The transforms need no instructions of a processor, so they are tested on each.
#include "../test.hpp"

#include <cupola/ops/host/convolution.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>

#include "convolution_problem.hpp"

using namespace operation_run;
using reference::distance;

namespace {

using Bf16 = DeviceAndElement<Host, BFloat16>;

struct Case {
    std::int64_t kernel, batch, height, width, in, out, pad;
    bool bias = true;
};

/// Odd extents, extents below a tile, batches of 1 to 7, all channels that a block may have left over; the last has
/// several segments and blocks of tiles.
constexpr Case cases[] = {{5, 1, 7, 9, 16, 16, 2, false}, {5, 2, 13, 8, 48, 16, 2}, {5, 3, 5, 6, 32, 48, 0},
                          {5, 5, 12, 12, 64, 64, 2},      {5, 7, 3, 5, 16, 80, 2},  {3, 1, 9, 7, 80, 32, 1},
                          {3, 4, 6, 21, 16, 32, 0},       {3, 6, 4, 4, 32, 16, 1},  {3, 7, 17, 15, 16, 16, 1, false}};

std::string describe(const Case& c) {
    return text("batch ", c.batch, ", ", c.height, " x ", c.width, " x ", c.in, " -> ", c.out, ", ", c.kernel,
                " taps, padding ", c.pad);
}

reference::Convolution oracle(const Case& c) {
    const auto axis = [&](std::int64_t size) {
        return reference::Axis{size, c.kernel, 1, size + 2 * c.pad - c.kernel + 1, c.pad, c.pad};
    };
    return {c.batch, axis(c.height), axis(c.width), c.in, c.out};
}
ConvolutionShape shape_of(const Case& c) { return operation_run::convolution_shape(oracle(c), c.bias); }

/// With weights that are not elements of bfloat16.
Problem problem_of(const Case& c, std::uint64_t seed, int threads = 1) {
    Problem problem = operation_run::convolution_problem<Bf16>(oracle(c), c.bias, seed, threads);
    problem.parameters[0] = reference::Random(seed + 1).normal(oracle(c).weight_size());
    return problem;
}

template <std::int64_t kernel>
Outcome transformed(const Case& c, const Problem& problem) {
    return operation_run::run<Bf16>(problem, [&](const BuildContext<Host, BFloat16>& build) {
        return ops::WinogradConvolution<4, kernel, BFloat16>(build, shape_of(c));
    });
}
Outcome run(const Case& c, const Problem& problem) {
    return c.kernel == 5 ? transformed<5>(c, problem) : transformed<3>(c, problem);
}
Outcome run_direct(const Case& c, const Problem& problem) {
    return operation_run::run<Bf16>(problem, [&](const BuildContext<Host, BFloat16>& build) {
        return ops::Convolution<Host, BFloat16>(build, shape_of(c));
    });
}

/// Of oneDNN, which may be limited by ONEDNN_MAX_CPU_ISA.
bool library_computes_bfloat16() {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

Floats nearest(const reference::Doubles& values) {
    Floats result;
    for (const double value : values) result.push_back(BFloat16(static_cast<float>(value)));
    return result;
}
Floats nearest(const Floats& values) { return nearest(reference::Doubles(values.begin(), values.end())); }

/// The errors of y, dx and dw, each in bfloat16.
std::array<double, 3> errors_of(const Outcome& outcome, const std::array<reference::Doubles, 3>& exact) {
    return {distance(outcome.output, exact[0]), distance(outcome.input_gradient, exact[1]),
            distance(nearest(outcome.parameter_gradients[0]), exact[2])};
}

bool same_bits(const Outcome& a, const Outcome& b) {
    return reference::same_bits(a.output, b.output) && reference::same_bits(a.input_gradient, b.input_gradient) &&
           std::ranges::equal(a.parameter_gradients, b.parameter_gradients,
                              [](const Floats& x, const Floats& y) { return reference::same_bits(x, y); });
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("a register is narrowed to bfloat16 as its values are: to nearest, ties to even, NaN kept") {
    std::vector<float> values{
        0.0F,     -0.0F,     1.0F,    1.00390625F, 1.01171875F,  -1.00390625F,  1.00390637F,
        infinity, -infinity, 3.4e38F, -3.4e38F,    not_a_number, -not_a_number, std::bit_cast<float>(0x7F80'0001U)};
    for (const float value : reference::Random(1).normal(1000)) values.push_back(value);
    values.resize((values.size() + 15) / 16 * 16);
    std::vector<BFloat16> narrow(values.size());
    for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(impl::lane_count)) {
        impl::store_lanes(narrow.data() + i, impl::load_lanes(values.data() + i));
        std::array<float, 16> wide{}, rounded{};
        impl::store_lanes(wide.data(), impl::load_lanes(narrow.data() + i));
        impl::store_lanes(rounded.data(), impl::rounded_lanes<BFloat16>(impl::load_lanes(values.data() + i)));
        for (std::size_t k = 0; k < static_cast<std::size_t>(impl::lane_count); ++k) {
            CHECK(narrow[i + k].bits == BFloat16(values[i + k]).bits);
            CHECK(std::bit_cast<std::uint32_t>(wide[k]) == std::uint32_t{narrow[i + k].bits} << 16);
            CHECK(std::bit_cast<std::uint32_t>(rounded[k]) == std::bit_cast<std::uint32_t>(wide[k]));
        }
    }
}

TEST_CASE("Winograd's convolution in bfloat16 has the error of rounding, and of the direct one, with any threads") {
    for (const Case& c : cases) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        const reference::Convolution r = oracle(c);
        Problem problem = problem_of(c, seed);
        const Floats w = nearest(problem.parameters[0]), b = c.bias ? problem.parameters[1] : Floats{};
        const std::array exact{r.forward(problem.x, w, b), r.input_gradient(problem.dy, w),
                               r.weight_gradient(problem.dy, problem.x)};
        const Outcome one = run(c, problem);
        const auto errors = errors_of(one, exact);
        for (std::size_t i = 0; i < exact.size(); ++i)
            CHECK(errors[i] <= 1.001 * distance(nearest(exact[i]), exact[i]));
        CHECK(distance(one.parameter_gradients[0], exact[2]) < 3e-5);
        if (c.bias) CHECK(distance(one.parameter_gradients[1], r.bias_gradient(problem.dy)) < reference::tolerance);
        if (library_computes_bfloat16()) {
            const auto direct = errors_of(run_direct(c, problem), exact);
            for (std::size_t i = 0; i < exact.size(); ++i) CHECK(errors[i] <= 1.001 * direct[i]);
        }
        for (const int threads : {2, 3, 7}) {
            CAPTURE(threads);
            problem.threads = threads;
            CHECK(same_bits(run(c, problem), one));
        }
    }
}

TEST_CASE("Winograd's convolution in bfloat16 fuses a ReLU without other bits, and adds to gradients") {
    for (const Case& c : {cases[1], cases[8]}) {
        const std::uint64_t seed = reference::fresh_seed();
        INFO(describe(c), ", seed ", seed);
        Problem problem = problem_of(c, seed, 2);
        Outcome apart = run(c, problem);
        problem.accumulate = true;
        const Outcome added = run(c, problem);
        for (std::size_t i = 0; i < apart.parameter_gradients.size(); ++i) {
            Floats sum = problem.gradients_before[i];
            for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += apart.parameter_gradients[i][k];
            CHECK(reference::same_bits(added.parameter_gradients[i], sum));
        }
        problem.accumulate = false;
        problem.activation = Activation::relu;
        const Outcome fused = run(c, problem);
        problem.activation = Activation::none;
        for (std::size_t i = 0; i < apart.output.size(); ++i) {
            float& value = apart.output[i];
            value = value < 0.0F ? 0.0F : value;
            if (!(value > 0.0F)) problem.dy[i] = 0.0F;
        }
        CHECK(reference::same_bits(fused.output, apart.output));
        const Outcome masked = run(c, problem);
        CHECK(reference::same_bits(fused.input_gradient, masked.input_gradient));
        CHECK(reference::same_bits(fused.parameter_gradients[0], masked.parameter_gradients[0]));
    }
}

TEST_CASE("Winograd's convolution in bfloat16 hides no NaN or infinity, and shows none in another image") {
    const Case c{3, 2, 9, 7, 16, 16, 1};
    const reference::Convolution r = oracle(c);
    for (const float value : {not_a_number, infinity, -infinity}) {
        CAPTURE(value);
        Problem problem = problem_of(c, 5);
        const auto check = [](const Floats& got, const reference::Doubles& exact) {
            for (std::size_t i = 0; i < got.size(); ++i) {
                if (!std::isfinite(exact[i])) CHECK_FALSE(std::isfinite(got[i]));
                if (i >= got.size() / 2) CHECK(std::isfinite(got[i]));
            }
        };
        problem.x.front() = problem.dy.front() = value;
        const Floats w = nearest(problem.parameters[0]);
        const Outcome outcome = run(c, problem);
        check(outcome.output, r.forward(problem.x, w, problem.parameters[1]));
        check(outcome.input_gradient, r.input_gradient(problem.dy, w));
        const reference::Doubles exact = r.weight_gradient(problem.dy, problem.x);
        for (std::size_t i = 0; i < exact.size(); ++i)
            if (!std::isfinite(exact[i])) CHECK_FALSE(std::isfinite(outcome.parameter_gradients[0][i]));
    }
}

TEST_CASE(
    "a device with the Winograd option uses it in bfloat16 where it suits, and the direct convolution elsewhere") {
    CHECK_FALSE(impl::winograd_suits_bfloat16_of(dnnl_cpu_isa_avx512_core_amx));
    for (const int isa : {dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core})
        CHECK_FALSE(impl::winograd_suits_bfloat16_of(isa));
    constexpr int bf16 = dnnl_cpu_isa_avx512_core_bf16, fp16 = dnnl_cpu_isa_avx512_core_fp16;
    for (const int isa : {bf16, fp16}) CHECK(impl::winograd_suits_bfloat16_of(isa) == (impl::lane_count == 16));
    const ConvolutionShape few = shape_of({3, 1, 16, 16, 16, 32, 1}), many = shape_of({3, 1, 16, 16, 32, 32, 1});
    CHECK(impl::winograd_has_channels_for_bfloat16(few, fp16));
    CHECK_FALSE(impl::winograd_has_channels_for_bfloat16(few, bf16));
    CHECK(impl::winograd_has_channels_for_bfloat16(many, bf16));
    // 16 x 16 outputs of tiles for 14 x 14, and 8 x 8 for 5 x 5.
    CHECK(impl::winograd_fills_tiles(shape_of({3, 1, 14, 14, 16, 16, 1})));
    CHECK_FALSE(impl::winograd_fills_tiles(shape_of({3, 1, 5, 5, 16, 16, 1})));

    const auto suits = [](const ConvolutionShape& shape) {
        return winograd_suits_bfloat16() && impl::winograd_fills_tiles(shape) &&
               impl::winograd_has_channels_for_bfloat16(shape, dnnl_get_effective_cpu_isa());
    };
    HostContext context(0, {.threads = 2, .convolution = &winograd});
    const auto is_taken = [&](const ConvolutionShape& shape) {
        const BuildContext<Host, BFloat16> build{
            .context = context,
            .batch = 1,
            .input = {shape.height.input, shape.width.input, shape.in_channels},
            .output = {shape.height.output, shape.width.output, shape.out_channels}};
        return context.convolution()->make_for(build, shape) != nullptr;
    };
    for (std::int64_t channels = 1; channels <= 65; ++channels) {
        for (const std::int64_t kernel : {1, 3, 5}) {
            for (const Case& c :
                 {Case{kernel, 1, 11, 7, channels, 64, kernel / 2}, Case{kernel, 1, 11, 7, 64, channels, kernel / 2}}) {
                CHECK(is_taken(shape_of(c)) == (suits(shape_of(c)) && kernel > 1 && channels % 16 == 0));
            }
        }
    }
    CHECK_FALSE(is_taken(shape_of({3, 1, 3, 9, 16, 16, 1})));
    CHECK_FALSE(is_taken(shape_of({3, 1, 5, 9, 16, 16, 0})));
    CHECK_FALSE(is_taken(shape_of({3, 1, 5, 5, 16, 16, 1})));
    ConvolutionShape grouped = shape_of({3, 1, 11, 7, 64, 64, 1}), dilated = grouped;
    grouped.groups = 2;
    dilated.width.dilation = 2;
    CHECK_FALSE(is_taken(grouped));
    CHECK_FALSE(is_taken(dilated));
    constexpr ConvolutionAlgorithm float_only{"float only", &impl::make_winograd<float>};
    constexpr ConvolutionAlgorithm bfloat16_only{"bfloat16 only", nullptr, &impl::make_winograd<BFloat16>};
    CHECK(bfloat16_only.make_for(BuildContext<Host>{.context = context, .batch = 1, .input = {}, .output = {}},
                                 grouped) == nullptr);
    CHECK(float_only.make_for(BuildContext<Host, BFloat16>{.context = context, .batch = 1, .input = {}, .output = {}},
                              grouped) == nullptr);

    // An operation of the device computes with it.
    if (!library_computes_bfloat16()) return;
    for (const std::int64_t channels : {15, 16, 17, 64, 65}) {
        const Case c{5, 3, 11, 7, channels, channels, 2};
        CAPTURE(channels);
        const Problem problem = problem_of(c, 3, 2);
        const Outcome direct = run_direct(c, problem);
        const Outcome chosen = operation_run::run<Bf16>(problem, [&](BuildContext<Host, BFloat16> build) {
            const BuildContext<Host, BFloat16> with{
                .context = context, .batch = build.batch, .input = build.input, .output = build.output};
            return ops::Convolution<Host, BFloat16>(with, shape_of(c));
        });
        CHECK(same_bits(chosen, direct) == !(suits(shape_of(c)) && channels % 16 == 0));
        CHECK(distance(chosen.output, direct.output) < 4e-3);
        CHECK(distance(chosen.input_gradient, direct.input_gradient) < 4e-3);
    }
}
