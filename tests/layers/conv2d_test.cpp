// SPDX-License-Identifier: Apache-2.0
//
// Conv2d: extents, parameters and work are known from the type, and its options reach the operation.
#include "../test.hpp"

#include <cupola/layers/conv2d.hpp>

#include "../reference/convolution.hpp"
#include "layer_run.hpp"

namespace {

constexpr Shape image{24, 24, 3};
using Conv1 = Conv2d<64, 5>;

static_assert(Conv1::output(image).shape == Shape{24, 24, 64} && Conv1::output(image).error.empty());
static_assert(Conv2d<64, 5, valid>::output(image).shape == Shape{20, 20, 64});
static_assert(Conv2d<64, 5, stride(2)>::output(image).shape == Shape{12, 12, 64});
static_assert(Conv2d<64, 5, stride(3), valid>::output(Shape{24, 23, 3}).shape == Shape{7, 7, 64});
static_assert(Conv2d<64, 3, stride(2), pad(1)>::output(Shape{32, 31, 3}).shape == Shape{16, 16, 64});
static_assert(Conv2d<64, 3, pad(1)>::output(image).shape == Shape{24, 24, 64});
static_assert(Conv2d<64, 3, pad(0)>::output(image).shape == Shape{22, 22, 64}, "as valid");
static_assert(Conv2d<7, 1>::output(Shape{5, 9, 2}).shape == Shape{5, 9, 7});
static_assert(Conv2d<7, 5>::output(Shape{1, 1, 2}).shape == Shape{1, 1, 7}, "same pads whatever is missing");

static_assert(Conv2d<7, kernel(3, 5), valid>::output(Shape{9, 9, 2}).shape == Shape{7, 5, 7});
static_assert(Conv2d<7, kernel(3, 5), pad(1, 2), stride(2, 1)>::output(Shape{9, 9, 2}).shape == Shape{5, 9, 7});
static_assert(Conv2d<7, 3, valid, dilation(2)>::output(Shape{9, 7, 2}).shape == Shape{5, 3, 7});
static_assert(Conv2d<7, 3, valid, dilation(2, 1)>::output(Shape{9, 7, 2}).shape == Shape{5, 5, 7});
static_assert(Conv2d<7, 3, dilation(4)>::output(Shape{9, 7, 2}).shape == Shape{9, 7, 7});
static_assert(Conv2d<64, kernel(3, 5), stride(2, 1), pad(1, 2), dilation(2), groups(4)>::output(Shape{32, 32, 8})
                  .shape == Shape{15, 28, 64});
static_assert(Conv2d<96, 3, depthwise>::output(Shape{14, 14, 48}).shape == Shape{14, 14, 96});

// The tutorial's multiply-adds: taps inside the image only.
static_assert(multiply_adds_of<Conv1>(image) == 2'495'232);
static_assert(multiply_adds_of<Conv2d<64, 5>>(Shape{12, 12, 64}) == 11'943'936);
static_assert(multiply_adds_of<Conv2d<64, 5, valid>>(image) == 20 * 20 * 5 * 5 * 3 * 64);
static_assert(multiply_adds_of<Conv2d<2, 1, stride(2)>>(Shape{4, 4, 3}) == 2 * 2 * 3 * 2);

constexpr Parameters parameters = parameters_of<Conv1>(image);
static_assert(parameters.count == 2);
static_assert(parameters.list[0].shape == Shape{64, 5, 5, 3} && parameters.list[1].shape == Shape{64});
static_assert(std::string_view(parameters.list[0].name) == "weight" &&
              std::string_view(parameters.list[1].name) == "bias");
static_assert(parameters.list[0].fan_in == 5 * 5 * 3 && parameters.list[0].fan_out == 5 * 5 * 64);
static_assert(parameters.list[1].fan_in == 5 * 5 * 3 && parameters.list[1].fan_out == 5 * 5 * 64);
static_assert(parameters.list[0].initializer == he_normal() && parameters.list[1].initializer == constant(0.0));
static_assert(parameters_of<Conv2d<64, 5, no_bias>>(image).count == 1);

// The weights of a group. As in PyTorch, fan in is of the group and fan out of the layer.
constexpr Parameter grouped = parameters_of<Conv2d<64, kernel(3, 5), groups(4)>>(Shape{9, 9, 8}).list[0];
static_assert(grouped.shape == Shape{64, 3, 5, 2} && grouped.fan_in == 3 * 5 * 2 && grouped.fan_out == 3 * 5 * 64);
constexpr Parameter of_each = parameters_of<Conv2d<96, 3, depthwise>>(Shape{9, 9, 48}).list[0];
static_assert(of_each.shape == Shape{96, 3, 3, 1} && of_each.fan_in == 3 * 3 && of_each.fan_out == 3 * 3 * 96);
static_assert(multiply_adds_of<Conv2d<64, 5, valid, groups(4)>>(Shape{24, 24, 8}) == 20 * 20 * 5 * 5 * 2 * 64);
static_assert(multiply_adds_of<Conv2d<2, 3, dilation(2), depthwise>>(Shape{24, 24, 2}) ==
              (24 * 3 - 4) * (24 * 3 - 4) * 2);

static_assert(std::string_view(Conv1::description) == "Conv2d 64, 5 x 5");
static_assert(
    std::string_view(Conv2d<64, kernel(3, 5), stride(2, 1), pad(1, 2), dilation(2), groups(4)>::description) ==
    "Conv2d 64, 3 x 5, stride 2 x 1, pad 1 x 2, dilation 2, 4 groups");
static_assert(std::string_view(Conv2d<64, 3, stride(2), pad(1), depthwise, no_bias>::description) ==
              "Conv2d 64, 3 x 3, stride 2, pad 1, depthwise, no bias");
// The longest.
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
static_assert(std::string_view(Conv2d<least, kernel(least, least + 1), stride(least, least + 1), pad(least, least + 1),
                                      dilation(least, least + 1), groups(least), no_bias>::description)
                  .size() <= LayerDescription::capacity);
static_assert(short_type_name<Conv1>() == "Conv2d<64, 5>");
static_assert(short_type_name<Conv2d<64, std::int64_t{5}, stride(2)>>() == "Conv2d<64, 5>");

// Options in any order.
using Chosen = Conv2d<8, 3, no_bias, weights(truncated_normal(0.05)), stride(2), valid>;
static_assert(Chosen::stride == 2 && Chosen::padding == Padding::valid && !Chosen::has_bias);
static_assert(parameters_of<Chosen>(image).list[0].initializer == truncated_normal(0.05));
static_assert(parameters_of<Conv2d<8, 3, biases(constant(0.1))>>(image).list[1].initializer == constant(0.1));
static_assert(Conv1::stride == 1 && Conv1::padding == Padding::same && Conv1::has_bias);

static_assert(traits_of<Conv1>().backward_reads_input && !traits_of<Conv1>().backward_reads_output);
static_assert(traits_of<Conv1>().absorbs_relu && kind_of<Conv1>() == LayerKind::convolution);

static_assert(std::string_view(Conv2d<0, 5>::output(image).error) ==
              "has the number of channels 0, which must be at least 1");
static_assert(std::string_view(Conv2d<64, -3>::output(image).error) == "has the kernel -3, which must be at least 1");
static_assert(std::string_view(Conv2d<64, 5, stride(0)>::output(image).error) ==
              "has the stride 0, which must be at least 1");
static_assert(std::string_view(Conv2d<64, 5>::output(Shape{1728}).error) == "expects height x width x channels");
static_assert(std::string_view(Conv2d<64, 5, valid>::output(Shape{4, 24, 3}).error) ==
              "has a kernel larger than its input");
static_assert(std::string_view(Conv2d<64, 5, valid>::output(Shape{24, 4, 3}).error) ==
              "has a kernel larger than its input");

static_assert(std::string_view(Conv2d<64, 3, valid, pad(1)>::output(image).error) ==
              "accepts only one of same, valid and pad(n)");
static_assert(std::string_view(Conv2d<64, 3, pad(-1)>::output(image).error) == "has a negative padding");
static_assert(std::string_view(Conv2d<64, 3, pad(3)>::output(image).error) ==
              "has a padding as large as its kernel: some outputs would not depend on the input");

static_assert(std::string_view(Conv2d<8, stride(2)>::output(image).error) ==
              "expects its channels and then its kernel, n or kernel(height, width)");
static_assert(std::string_view(Conv2d<8, 3, stride(2), stride(2, 1)>::output(image).error) ==
              "is given an option twice");
static_assert(std::string_view(Conv2d<8, 3, dilation(2), dilation(2, 1)>::output(image).error) ==
              "is given an option twice");
static_assert(std::string_view(Conv2d<9, 3, groups(3), depthwise>::output(image).error) == "is given an option twice");
static_assert(std::string_view(Conv2d<8, 3, pad(1), pad(1, 2)>::output(image).error) ==
              "accepts only one of same, valid and pad(n)");
static_assert(std::string_view(Conv2d<8, kernel(3, 0)>::output(image).error) ==
              "has the kernel 0, which must be at least 1");
static_assert(std::string_view(Conv2d<8, 3, stride(1, 0)>::output(image).error) ==
              "has the stride 0, which must be at least 1");
static_assert(std::string_view(Conv2d<8, kernel(3, 5), pad(3, 2)>::output(image).error) ==
              "has a padding as large as its kernel: some outputs would not depend on the input");
static_assert(Conv2d<8, 3, pad(4), dilation(2)>::output(image).error.empty());
static_assert(std::string_view(Conv2d<8, 3, pad(5), dilation(2)>::output(image).error) ==
              "has a padding as large as its kernel: some outputs would not depend on the input");
static_assert(std::string_view(Conv2d<8, 3, dilation(1, 0)>::output(image).error) ==
              "has the dilation 0, which must be at least 1");
static_assert(!Conv2d<8, 3, depthwise>::output(Shape{8, 8, 0}).error.empty());
static_assert(std::string_view(Conv2d<8, 3, groups(0)>::output(image).error) ==
              "has the number of groups 0, which must be at least 1");
static_assert(std::string_view(Conv2d<8, 3, groups(2)>::output(image).error) ==
              "has 2 groups, which do not divide the channels of its input");
static_assert(std::string_view(Conv2d<8, 3, groups(3)>::output(image).error) ==
              "has 3 groups, which do not divide its own channels");
static_assert(std::string_view(Conv2d<8, 3, depthwise>::output(image).error) ==
              "is depthwise, and its channels are no multiple of those of its input");
static_assert(std::string_view(Conv2d<8, 3, valid, dilation(12)>::output(image).error) ==
              "has a kernel larger than its input with the dilation 12 x 12");
static_assert(
    std::string_view(Conv2d<8, 3, valid, dilation(std::numeric_limits<std::int64_t>::max())>::output(image).error) ==
    "has an input, a kernel, a stride or a padding of more than 2^29 rows or columns");

template <class L, class D>
void agrees(const Shape& input, std::int64_t batch, const reference::Convolution& r, bool bias) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const auto [problem, outcome] = layer_run::run<L, D>(input, batch, seed);
    REQUIRE(problem.parameters.size() == (bias ? 2 : 1));
    const reference::Floats b = bias ? problem.parameters[1] : reference::Floats{};
    CHECK(reference::distance(outcome.output, r.forward(problem.x, problem.parameters[0], b)) <
          operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, problem.parameters[0])) <
          operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.parameter_gradients[0], r.weight_gradient(problem.dy, problem.x)) <
          operation_run::weight_gradient_tolerance<D>);
}

/// The numbers from which PyTorch's figures below were computed: quarters from -6/4 to 6/4.
reference::Floats quarters(std::int64_t count, int step, int start) {
    reference::Floats values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((start + i * step) % 13 - 6) / 4);
    return values;
}

/// The figures are sixteenths, in the order of Cupola's layouts.
template <class L, class D>
void has_figures(const Shape& input, const reference::Doubles& y, const reference::Doubles& dx,
                 const reference::Doubles& dw) {
    operation_run::Problem problem;
    problem.input = input;
    problem.output = L::output(input).shape;
    problem.batch = 1;
    problem.x = quarters(input.size(), 5, 1);
    problem.parameters = {quarters(parameters_of<L>(input).list[0].shape.size(), 7, 2)};
    problem.dy = quarters(problem.output.size(), 3, 4);
    const operation_run::Outcome outcome =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<L>(build); });
    const auto agree = [](reference::Floats values, const reference::Doubles& figures, double tolerance) {
        for (float& value : values) value *= 16;
        REQUIRE(values.size() == figures.size());
        CHECK(reference::distance(values, figures) < tolerance);
    };
    agree(outcome.output, y, operation_run::tolerance<D>);
    agree(outcome.input_gradient, dx, operation_run::tolerance<D>);
    agree(outcome.parameter_gradients[0], dw, operation_run::weight_gradient_tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("Conv2d computes the operation of its template arguments", D, DevicesAndElements) {
    agrees<Conv2d<16, 5>, D>({9, 7, 3}, 3, {3, reference::same(9, 5, 1), reference::same(7, 5, 1), 3, 16}, true);
    agrees<Conv2d<5, 3, stride(2), no_bias>, D>({9, 8, 3}, 2,
                                                {2, reference::same(9, 3, 2), reference::same(8, 3, 2), 3, 5}, false);
    agrees<Conv2d<5, 3, valid, stride(3)>, D>({9, 8, 3}, 2,
                                              {2, reference::valid(9, 3, 3), reference::valid(8, 3, 3), 3, 5}, true);
    // PyTorch's padding: the same at both ends, where `same` would put all of it at the end.
    const reference::Axis even{8, 3, 2, 4, 1, 0}, odd{7, 3, 2, 4, 1, 1};
    agrees<Conv2d<5, 3, pad(1), stride(2)>, D>({8, 7, 3}, 2, {2, even, odd, 3, 5}, true);
    agrees<Conv2d<16, 3, pad(2), no_bias>, D>({5, 4, 16}, 2, {2, {5, 3, 1, 7, 2, 2}, {4, 3, 1, 6, 2, 2}, 16, 16},
                                              false);
    agrees<Conv2d<16, kernel(3, 5), stride(2, 1), pad(1, 2), dilation(2), groups(4)>, D>(
        {11, 13, 8}, 2,
        {2, reference::padded(11, 3, 2, 1, false, 2), reference::padded(13, 5, 1, 2, false, 2), 8, 16, 4}, true);
    agrees<Conv2d<12, kernel(2, 3), dilation(1, 3), depthwise, no_bias>, D>(
        {7, 9, 6}, 1, {1, reference::same(7, 2, 1), reference::same(9, 3, 1, 3), 6, 12, 6}, false);
}

// Computed by PyTorch 2.15 in double.
TYPED_TEST_CASE("Conv2d with groups and dilation gives PyTorch's values", D, DevicesAndElements) {
    has_figures<Conv2d<4, kernel(3, 2), stride(2, 1), pad(1), dilation(1, 2), groups(2), no_bias>, D>(
        {5, 4, 4}, {-14, -12, -14, -6, -9,  -44, -49, -7,  -23, 31,  115, -14, -5,  -30, -21, -1,
                    -51, 86,  1,   30, 84,  -58, 76,  -61, -86, 42,  -87, 111, 78,  -14, 67,  -29,
                    30,  -32, -22, 0,  -75, 48,  80,  -58, 72,  -54, -37, 5,   -54, 52,  34,  -36},
        {6,   -15, 9,  -6,  11,  -31, -23, 25,  5,   -39, 27, -5,  -1,  -23, 16,  0,   -32, 52,  34, 0,
         -35, 55,  4,  -38, -73, 117, 78,  -33, -28, 54,  40, -22, -28, 38,  9,   -10, -39, 2,   21, -17,
         -58, 72,  19, -21, -30, 35,  8,   -12, -22, -50, 34, -8,  -5,  -22, 66,  -18, 9,   -77, -3, 13,
         44,  -38, 24, 6,   16,  0,   9,   -14, 41,  9,   13, -33, 35,  1,   -28, 15,  19,  2,   0,  -24},
        {-9, 16, -26, 16, 54, 45, -73, 67, -8,  7, 0,   -20, -5,  6,  -65, -11, -5, -61, 5,  -6,  9,   10, 26, 18,
         -7, 16, -50, 16, 68, 17, 58,  0,  -26, 0, -18, 12,  -18, -9, -26, 13,  58, -40, 68, -37, -50, 27, -7, -69});
    has_figures<Conv2d<6, 3, valid, dilation(2), depthwise, no_bias>, D>(
        {6, 5, 3}, {-7, -11, 1, -2, 91, 37, -96, -98, 33, -72, -16, 62},
        {2,  2,   -3, 0,  0,   0,   -5,  14, 15, 0,  0, 0,  1,  0,   -6,  -48, -23, -3, 0,   0,  0,  15, 7,
         20, 0,   0,  0,  -39, -28, 4,   -6, 12, 12, 0, 0,  0,  0,   -54, -9,  0,   0,  0,   -7, 10, 9,  24,
         2,  -38, 0,  0,  0,   -30, 19,  11, 0,  0,  0, 33, -3, -31, -1,  -56, -12, 0,  0,   0,  -8, 8,  6,
         0,  0,   0,  -2, 20,  -15, -21, 14, 18, 0,  0, 0,  42, -8,  -24, 0,   0,   0,  -12, 22, 25},
        {25,  -10, -6,  -7,  -3, -12, 26,  -9, -5,  25, -25, 3,   -4,  24, -39, 32, -18, 10,
         12,  12,  -40, -40, 12, 12,  12,  12, -40, 3,  -25, 25,  32,  17, -11, -4, -32, 18,
         -11, 24,  -6,  -5,  -9, 26,  -12, -3, -7,  10, 30,  -15, -20, 0,  20,  15, -30, -10});
}
