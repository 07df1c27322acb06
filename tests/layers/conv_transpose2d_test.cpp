// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/impl/convolution_options.hpp, cupola/ops/transposed_convolution.hpp
//
// ConvTranspose2d: PyTorch's extents and values, and all gradients against plain loops.
#include "../test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <cupola/layers/conv_transpose2d.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#include <cupola/ops/host/winograd_convolution.hpp>
#endif

#include "../reference/convolution.hpp"
#include "layer_run.hpp"

namespace {

constexpr Shape image{12, 9, 8};

static_assert(LayerOn<ConvTranspose2d<32, 3>, AnyDevice>);
static_assert(ConvTranspose2d<32, 3>::output(image).shape == Shape{14, 11, 32});
static_assert(ConvTranspose2d<32, 2, stride(2)>::output(image).shape == Shape{24, 18, 32});
static_assert(ConvTranspose2d<32, 3, stride(2), pad(1), output_padding(1)>::output(image).shape == Shape{24, 18, 32});
static_assert(ConvTranspose2d<32, 4, stride(2), pad(1)>::output(image).shape == Shape{24, 18, 32});
static_assert(ConvTranspose2d<6, kernel(3, 5), stride(3, 2), pad(1, 0), output_padding(2, 1), dilation(2, 3),
                              groups(2)>::output(image)
                  .shape == Shape{11 * 3 - 2 + 2 * 2 + 2 + 1, 8 * 2 + 3 * 4 + 1 + 1, 6});
static_assert(ConvTranspose2d<2, 3, pad(2)>::output(Shape{3, 4, 1}).shape == Shape{1, 2, 2});

constexpr Parameters parameters = parameters_of<ConvTranspose2d<6, kernel(3, 4), stride(2), groups(2)>>(image);
static_assert(parameters.count == 2 && parameters.list[0].shape == Shape{8, 3, 4, 3} &&
              parameters.list[1].shape == Shape{6});
static_assert(parameters.list[0].fan_in == 3 * 3 * 4 && parameters.list[0].fan_out == 8 * 3 * 4);
static_assert(parameters.list[1].fan_in == 3 * 3 * 4 && parameters.list[1].fan_out == 8 * 3 * 4);
static_assert(parameters.list[0].layout == FileLayout::channels_second);
static_assert(parameters.list[0].initializer == he_normal() && parameters.list[1].initializer == constant(0));
static_assert(parameters_of<ConvTranspose2d<6, 3, no_bias>>(image).count == 1);
static_assert(multiply_adds_of<ConvTranspose2d<6, 2, stride(2)>>(image) == 12 * 9 * 8 * 2 * 2 * 6);
static_assert(multiply_adds_of<ConvTranspose2d<6, 3, pad(1)>>(image) == (3 * 12 - 2) * (3 * 9 - 2) * 8 * 6);

static_assert(description_of<ConvTranspose2d<6, 3>>() == "ConvTranspose2d 6, 3 x 3");
static_assert(description_of<ConvTranspose2d<6, kernel(3, 5), stride(3, 2), pad(1, 0), output_padding(2, 1),
                                             dilation(2, 3), groups(2), no_bias>>() ==
              "ConvTranspose2d 6, 3 x 5, stride 3 x 2, pad 1 x 0, output padding 2 x 1, dilation 2 x 3, 2 groups, "
              "no bias");
static_assert(!traits_of<ConvTranspose2d<6, 3>>().backward_reads_output);

template <class L>
constexpr std::string_view error_of(const Shape& input = image) {
    return L::output(input).error;
}
static_assert(error_of<ConvTranspose2d<6, stride(2)>>() ==
              "expects its channels and then its kernel, n or kernel(height, width)");
static_assert(error_of<ConvTranspose2d<6, 3, same>>() ==
              "accepts only the options stride(n), pad(n), output_padding(n), dilation(n), groups(n), no_bias, "
              "weights(...) and biases(...)");
static_assert(error_of<ConvTranspose2d<6, 3, depthwise>>() ==
              "does not accept depthwise: state the channels of its input with groups(n)");
static_assert(error_of<ConvTranspose2d<6, 3, stride(2), output_padding(1), output_padding(1, 0)>>() ==
              "is given an option twice");
static_assert(error_of<ConvTranspose2d<6, 3, pad(1), pad(1, 2)>>() == "is given an option twice");
static_assert(error_of<ConvTranspose2d<6, 3, pad(-1)>>() == "has a negative padding");
static_assert(error_of<ConvTranspose2d<6, 3, stride(0)>>() == "has the stride 0, which must be at least 1");
static_assert(error_of<ConvTranspose2d<6, 3, stride(2), output_padding(2)>>() ==
              "has an output_padding of 2 x 2, which must be at least 0 and below the stride, 2 x 2");
static_assert(error_of<ConvTranspose2d<6, 3, stride(3, 1), output_padding(2, 1)>>() ==
              "has an output_padding of 2 x 1, which must be at least 0 and below the stride, 3 x 1");
static_assert(error_of<ConvTranspose2d<6, 3, output_padding(-1)>>() ==
              "has an output_padding of -1 x -1, which must be at least 0 and below the stride, 1 x 1");
static_assert(error_of<ConvTranspose2d<6, 3, pad(3)>>() ==
              "has a padding as large as its kernel: a part of the input would not be read");
static_assert(error_of<ConvTranspose2d<6, 3>>({16}) == "expects height x width x channels");
static_assert(error_of<ConvTranspose2d<6, 3, stride(1 << 20)>>({1 << 10, 2, 2}) ==
              "has an output, a kernel, a stride or a padding of more than 2^29 rows or columns");
// No more than 2^29 rows of the input and of the kernel, and an output of more.
static_assert(error_of<ConvTranspose2d<1, kernel(1 << 29, 1)>>({1 << 29, 1, 1}) ==
              "has an output, a kernel, a stride or a padding of more than 2^29 rows or columns");
static_assert(error_of<ConvTranspose2d<1, kernel(1, 3)>>({1, (1 << 29) - 1, 1}) ==
              "has an output, a kernel, a stride or a padding of more than 2^29 rows or columns");
static_assert(ConvTranspose2d<1, kernel(1, 3)>::output(Shape{1, (1 << 29) - 2, 1}).shape == Shape{1, 1 << 29, 1});
static_assert(error_of<ConvTranspose2d<6, 3, groups(3)>>() ==
              "has 3 groups, which do not divide the channels of its input");
static_assert(error_of<ConvTranspose2d<6, 3, groups(4)>>() == "has 4 groups, which do not divide its own channels");
static_assert(error_of<ConvTranspose2d<6, 3, pad(2)>>({2, 2, 1}) == "has a padding that leaves nothing of its output");

/// The convolution from the output to the input.
template <class L>
reference::Convolution oracle(const Shape& input, std::int64_t batch) {
    const Shape output = L::output(input).shape;
    const auto axis = [](std::int64_t large, std::int64_t small, std::int64_t kernel, std::int64_t stride,
                         std::int64_t pad, std::int64_t dilation) {
        return reference::Axis{large, kernel, stride, small, pad, pad, dilation};
    };
    return {batch,
            axis(output.height(), input.height(), L::kernels.height, L::strides.height, L::pads.height,
                 L::dilations.height),
            axis(output.width(), input.width(), L::kernels.width, L::strides.width, L::pads.width, L::dilations.width),
            output.channels(),
            input.channels(),
            L::groups.value};
}

template <class L, class D>
void agrees(const Shape& input, std::int64_t batch) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, std::string(description_of<L>()));
    const auto [problem, outcome] = layer_run::run<L, D>(input, batch, seed);
    const reference::Convolution r = oracle<L>(input, batch);
    const reference::Floats& weight = problem.parameters[0];
    reference::Doubles output = r.input_gradient(problem.x, weight);
    REQUIRE(problem.parameters.size() == (L::has_bias ? 2 : 1));
    const std::size_t channels = static_cast<std::size_t>(r.in);
    reference::Doubles bias_gradient(channels);
    for (std::size_t i = 0; i < output.size(); ++i) {
        if (L::has_bias) output[i] += static_cast<double>(problem.parameters[1][i % channels]);
        bias_gradient[i % channels] += static_cast<double>(problem.dy[i]);
    }
    CHECK(reference::distance(outcome.output, output) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.forward(problem.dy, weight, {})) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.parameter_gradients[0], r.weight_gradient(problem.x, problem.dy)) <
          operation_run::weight_gradient_tolerance<D>);
    if (L::has_bias) CHECK(reference::distance(outcome.parameter_gradients[1], bias_gradient) < reference::tolerance);
}

}  // namespace

TYPED_TEST_CASE("ConvTranspose2d agrees with plain loops, forward and backward", D, DevicesAndElements) {
    agrees<ConvTranspose2d<5, 3>, D>({4, 6, 3}, 2);
    agrees<ConvTranspose2d<16, 2, stride(2)>, D>({5, 4, 32}, 3);
    agrees<ConvTranspose2d<16, 3, stride(2), pad(1), output_padding(1)>, D>({5, 4, 16}, 2);
    agrees<ConvTranspose2d<4, 2, stride(3), output_padding(2), no_bias>, D>({3, 4, 6}, 2);  // wider than its kernel
    agrees<ConvTranspose2d<8, kernel(3, 5), stride(3, 2), pad(1, 3), output_padding(2, 1), dilation(2, 1), groups(4)>,
           D>({6, 7, 16}, 2);
    agrees<ConvTranspose2d<6, 3, pad(1), groups(6), no_bias>, D>({5, 7, 6}, 1);
    agrees<ConvTranspose2d<5, 2, stride(2)>, D>({17, 19, 3}, 2);  // the bias's sums of more than one slab
}

// The gradient of the bias of some channels and rows: the slabs cover it, and are many where it is large.
constexpr bool covers(std::int64_t rows, std::int64_t channels, std::int64_t slabs) {
    const impl::BiasSlabs of(rows, channels);
    return of.slabs() == slabs && of.elements == rows * channels && of.width % channels == 0 &&
           of.slab % of.width == 0 && of.slab * slabs >= of.elements && of.slab * (slabs - 1) < of.elements;
}
static_assert(covers(1, 1, 1) && covers(64, 64, 1) && covers(65, 64, 2) && covers(1 << 20, 64, 2048));
static_assert(covers(7 * 64, 5, 1) && covers(7 * 64 + 1, 5, 2) && covers(3 << 20, 3, 2043));

// Computed by PyTorch 2.15 in double, of quarters from -6/4 to 6/4 in the order of Cupola's layouts; the figures are sixteenths.
TYPED_TEST_CASE("ConvTranspose2d gives PyTorch's values", D, DevicesAndElements) {
    using L = ConvTranspose2d<2, kernel(3, 2), stride(2, 1), pad(1, 0), output_padding(1, 0), dilation(1, 2), groups(2),
                              no_bias>;
    const auto quarters = [](std::int64_t count, int step, int start) {
        reference::Floats values;
        for (int i = 0; i < count; ++i) values.push_back(static_cast<float>((start + i * step) % 13 - 6) / 4);
        return values;
    };
    operation_run::Problem problem;
    problem.input = {2, 3, 4};
    problem.output = L::output(problem.input).shape;
    REQUIRE(problem.output == Shape{4, 5, 2});
    problem.x = quarters(24, 5, 1);
    problem.parameters = {quarters(24, 7, 2)};
    problem.dy = quarters(40, 3, 4);
    const operation_run::Outcome outcome =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<L>(build); });
    const auto agree = [](reference::Floats values, const reference::Doubles& figures, double tolerance) {
        for (float& value : values) value *= 16;
        CHECK(reference::distance(values, figures) < tolerance);
    };
    agree(outcome.output, {15, -3, -6, 21,  -8, -9, 44,  3,  -22, -18, 3,   63,  0, -45, -49, 50,  43,  31, -37, -24,
                           -9, 30, 9,  -24, 30, 39, -24, 18, 40,  -3,  -11, -30, 8, -18, 28,  -27, -25, 11, 40,  4},
          operation_run::tolerance<D>);
    agree(outcome.input_gradient,
          {-5, 15, 15, -20, -20, 7, -38, -27, -9, 25, 13, -21, -17, -9, -1, -4, 1, -26, 25, -26, -20, -4, -1, -9},
          operation_run::tolerance<D>);
    agree(outcome.parameter_gradients[0],
          {25, 21, 71, 74, -58, -55, -24, -17, -79, -67, 68, 80, 16, 21, -6, -24, 14, 9, 51, 41, -79, -36, -43, -52},
          operation_run::weight_gradient_tolerance<D>);
}

// oneDNN divides sums by the number of threads.
TYPED_TEST_CASE("ConvTranspose2d has the same bits with as many threads, and its bias's gradient with any number", D,
                DevicesAndElements) {
    using L = ConvTranspose2d<6, 3, stride(2), pad(1), output_padding(1)>;
    operation_run::Problem problem = layer_run::run<L, D>({9, 8, 16}, 3, 1).problem;
    reference::Floats bias_gradient;
    for (const int threads : thread_counts<D>()) {
        CAPTURE(threads);
        problem.threads = threads;
        const auto outcome_of = [&problem] {
            return operation_run::run<D>(problem, [](const auto& build) { return operation_of<L>(build); });
        };
        const operation_run::Outcome once = outcome_of(), again = outcome_of();
        CHECK(reference::same_bits(once.output, again.output));
        CHECK(reference::same_bits(once.input_gradient, again.input_gradient));
        CHECK(reference::same_bits(once.parameter_gradients[0], again.parameter_gradients[0]));
        CHECK(reference::same_bits(once.parameter_gradients[1], again.parameter_gradients[1]));
        if (threads == 1) bias_gradient = once.parameter_gradients[1];
        CHECK(reference::same_bits(once.parameter_gradients[1], bias_gradient));
    }
}

TYPED_TEST_CASE("ConvTranspose2d adds to its parameters' gradients, and leaves out what is not needed", D,
                DevicesAndElements) {
    using L = ConvTranspose2d<4, 3, stride(2)>;
    operation_run::Problem problem = layer_run::run<L, D>({3, 4, 5}, 2, 1).problem;
    const auto outcome_of = [&problem] {
        return operation_run::run<D>(problem, [](const auto& build) { return operation_of<L>(build); });
    };
    const operation_run::Outcome plain = outcome_of();
    problem.accumulate = true;
    problem.gradients_before = {reference::Floats(plain.parameter_gradients[0].size(), 2.0F),
                                reference::Floats(plain.parameter_gradients[1].size(), 4.0F)};
    const operation_run::Outcome added = outcome_of();
    for (std::size_t p = 0; p < 2; ++p) {
        reference::Doubles expected;
        for (const float gradient : plain.parameter_gradients[p])
            expected.push_back(static_cast<double>(gradient) + (p == 0 ? 2.0 : 4.0));
        CHECK(reference::distance(added.parameter_gradients[p], expected) < operation_run::tolerance<D>);
    }
    problem.accumulate = false;
    problem.gradients_before = {};
    problem.made_for_input_gradient = problem.input_gradient = false;
    CHECK(outcome_of().parameter_gradients == plain.parameter_gradients);
    problem.made_for_training = problem.training = false;
    const operation_run::Outcome inference = outcome_of();
    CHECK(reference::same_bits(inference.output, plain.output));
    CHECK(inference.needs.saved == 0);
    // Outside training only the convolution's gradient of its input is computed.
    problem.made_for_training = problem.training = problem.made_for_input_gradient = problem.input_gradient = true;
    CHECK(inference.needs.packed <= outcome_of().needs.packed);
#ifndef CUPOLA_TEST_CUDA
    CHECK(inference.needs.packed < outcome_of().needs.packed);
#endif
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the initialisers of a fan have PyTorch's bounds in a ConvTranspose2d") {
    constexpr Parameters drawn = parameters_of<
        ConvTranspose2d<64, kernel(3, 2), stride(2), groups(2), weights(fan_in_uniform()), biases(fan_in_uniform())>>(
        image);
    const double bound = 1 / std::sqrt(64.0 / 2 * 3 * 2);
    for (std::uint32_t i = 0; i < 2; ++i) {
        CAPTURE(i);
        const Parameter& parameter = drawn.list[i];
        reference::Floats values(static_cast<std::size_t>(parameter.shape.size()));
        initialize(values, parameter.initializer, parameter.fan_in, parameter.fan_out, 1, i);
        double largest = 0;
        for (const float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
        CHECK(largest <= bound);
        CHECK(largest > 0.9 * bound);
    }
    const Parameter& weight = drawn.list[0];
    reference::Floats values(static_cast<std::size_t>(weight.shape.size()));
    initialize(values, he_normal_fan_out(), weight.fan_in, weight.fan_out, 1, 0);
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
    CHECK(squares / static_cast<double>(values.size()) == doctest::Approx(2.0 / (8 * 3 * 2)).epsilon(0.2));
}

TEST_CASE("ConvTranspose2d with the Winograd option agrees with oneDNN's convolutions") {
    using L = ConvTranspose2d<16, 3, pad(1)>;
    const operation_run::Problem problem = layer_run::run<L, Host>({12, 11, 16}, 2, 1).problem;
    for (const bool training : {false, true}) {
        CAPTURE(training);
        const auto outcome = [&](const ConvolutionAlgorithm* algorithm, int threads) {
            HostContext context(0, {.threads = threads, .convolution = algorithm});
            const auto team = context.team();
            operation_run::Problem of = problem;
            of.made_for_training = of.training = training;
            auto operation = operation_of<L>(BuildContext<Host, float>{.context = context,
                                                                       .batch = of.batch,
                                                                       .input = of.input,
                                                                       .output = of.output,
                                                                       .training = training,
                                                                       .inference = !training});
            return operation_run::run_calls<Host, float>(of, context, operation_run::calls_of<Host, float>(operation));
        };
        const operation_run::Outcome direct = outcome(nullptr, 2), chosen = outcome(&winograd, 2),
                                     of_one = outcome(&winograd, 1);
        const auto agree = [](const reference::Floats& values, const reference::Floats& figures) {
            CHECK_FALSE(reference::same_bits(values, figures));
            double largest = 0, error = 0;
            for (std::size_t i = 0; i < figures.size(); ++i) {
                const auto figure = static_cast<double>(figures[i]);
                largest = std::max(largest, std::abs(figure));
                error = std::max(error, std::abs(static_cast<double>(values[i]) - figure));
            }
            CHECK(error <= 1e-5 * largest);
        };
        agree(chosen.output, direct.output);
        CHECK(reference::same_bits(chosen.output, of_one.output));
        if (!training) continue;
        agree(chosen.input_gradient, direct.input_gradient);
        agree(chosen.parameter_gradients[0], direct.parameter_gradients[0]);
        CHECK(reference::same_bits(chosen.parameter_gradients[1], direct.parameter_gradients[1]));
        CHECK(reference::same_bits(chosen.input_gradient, of_one.input_gradient));
        CHECK(reference::same_bits(chosen.parameter_gradients[0], of_one.parameter_gradients[0]));
    }
}

TEST_CASE("the gradients of ConvTranspose2d are its derivatives") {
    const GradientCheck check =
        check_gradients<ConvTranspose2d<4, kernel(3, 2), stride(2), pad(1, 0), output_padding(1, 0), groups(2)>, Host>(
            {3, 4, 6});
    CHECK_MESSAGE(check, check.report());
}
#endif
