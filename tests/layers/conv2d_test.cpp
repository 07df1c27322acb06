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

static_assert(Conv1::output(image).shape == Shape{24, 24, 64} && Conv1::output(image).error == nullptr);
static_assert(Conv2d<64, 5, valid>::output(image).shape == Shape{20, 20, 64});
static_assert(Conv2d<64, 5, stride(2)>::output(image).shape == Shape{12, 12, 64});
static_assert(Conv2d<64, 5, stride(3), valid>::output(Shape{24, 23, 3}).shape == Shape{7, 7, 64});
static_assert(Conv2d<64, 3, stride(2), pad(1)>::output(Shape{32, 31, 3}).shape == Shape{16, 16, 64});
static_assert(Conv2d<64, 3, pad(1)>::output(image).shape == Shape{24, 24, 64});
static_assert(Conv2d<64, 3, pad(0)>::output(image).shape == Shape{22, 22, 64}, "as valid");
static_assert(Conv2d<7, 1>::output(Shape{5, 9, 2}).shape == Shape{5, 9, 7});
static_assert(Conv2d<7, 5>::output(Shape{1, 1, 2}).shape == Shape{1, 1, 7}, "same pads whatever is missing");

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

// Options in any order.
using Chosen = Conv2d<8, 3, no_bias, weights(truncated_normal(0.05)), stride(2), valid>;
static_assert(Chosen::stride == 2 && Chosen::padding == Padding::valid && !Chosen::has_bias);
static_assert(parameters_of<Chosen>(image).list[0].initializer == truncated_normal(0.05));
static_assert(parameters_of<Conv2d<8, 3, biases(constant(0.1))>>(image).list[1].initializer == constant(0.1));
static_assert(Conv1::stride == 1 && Conv1::padding == Padding::same && Conv1::has_bias);

static_assert(traits_of<Conv1>().backward_reads_input && !traits_of<Conv1>().backward_reads_output);
static_assert(traits_of<Conv1>().absorbs_relu && kind_of<Conv1>() == LayerKind::convolution);

static_assert(std::string_view(Conv2d<0, 5>::output(image).error) == "has a size of zero");
static_assert(std::string_view(Conv2d<64, 0>::output(image).error) == "has a size of zero");
static_assert(std::string_view(Conv2d<64, 5, stride(0)>::output(image).error) == "has a size of zero");
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
}
