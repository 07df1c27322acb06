// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/resampling.hpp
//
// UpsampleBilinear2d against the matrices of its map, and PyTorch's values.
#include "../test.hpp"

#include <cupola/layers/upsample_bilinear2d.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "separable_map.hpp"

namespace {

static_assert(LayerOn<UpsampleBilinear2d<2>, AnyDevice>);
static_assert(UpsampleBilinear2d<2>::output(Shape{8, 5, 16}).shape == Shape{16, 10, 16});
static_assert(parameters_of<UpsampleBilinear2d<2>>(Shape{8, 8, 3}).count == 0);
static_assert(description_of<UpsampleBilinear2d<2>>() == "UpsampleBilinear2d 2 x 2");
static_assert(std::string_view(UpsampleBilinear2d<0>::output(Shape{4, 4, 2}).error) ==
              "has the factor 0, which must be at least 1");
static_assert(std::string_view(UpsampleBilinear2d<2>::output(Shape{16}).error) == "expects height x width x channels");
static_assert(std::string_view(UpsampleBilinear2d<(1 << 20)>::output(Shape{1 << 10, 4, 2}).error) ==
              "has an output of more than 2^29 rows or columns");

/// The factor of input k in output i, by PyTorch's description: the place of the output among the inputs, at least 0,
/// between its two neighbours, of which the second is at most the last input.
double weight(std::int64_t inputs, std::int64_t outputs, std::int64_t i, std::int64_t k) {
    const double factor = static_cast<double>(outputs) / static_cast<double>(inputs);
    const double place = std::max((static_cast<double>(i) + 0.5) / factor - 0.5, 0.0);
    const auto low = static_cast<std::int64_t>(place);
    const std::int64_t high = std::min(low + 1, inputs - 1);
    // Places are multiples of 1 / 2 factor: what is less is rounding.
    const double beyond = place - static_cast<double>(low) < 1e-9 ? 0 : place - static_cast<double>(low);
    return (k == low ? 1 - beyond : 0.0) + (k == high ? beyond : 0.0);
}

template <std::int64_t factor, class D>
void agrees(const Shape& input, std::int64_t batch) {
    separable_map::agrees<UpsampleBilinear2d<factor>, D>(input, batch, weight, weight);
}

}  // namespace

TYPED_TEST_CASE("UpsampleBilinear2d interpolates between neighbouring pixels, and its gradient is the transposed map",
                D, DevicesAndElements) {
    agrees<2, D>({4, 6, 16}, 2);
    agrees<2, D>({5, 3, 3}, 3);
    agrees<3, D>({2, 4, 21}, 1);
    agrees<4, D>({1, 3, 40}, 2);
    agrees<5, D>({3, 1, 1}, 1);
    agrees<1, D>({4, 3, 5}, 2);
}

TYPED_TEST_CASE("UpsampleBilinear2d spreads a value that is not finite to the pixels that depend on it alone", D,
                DevicesAndElements) {
    separable_map::keeps_others_finite<UpsampleBilinear2d<1>, D>(3, weight);
    separable_map::keeps_others_finite<UpsampleBilinear2d<2>, D>(3, weight);
    separable_map::keeps_others_finite<UpsampleBilinear2d<3>, D>(3, weight);
}

#ifndef CUPOLA_TEST_CUDA
// Computed by PyTorch 2.15 in double; the figures are 36ths.
TEST_CASE("UpsampleBilinear2d gives PyTorch's values") {
    operation_run::Problem problem;
    problem.input = {2, 3, 1};
    problem.output = {6, 9, 1};
    for (int i = 0; i < 6; ++i) problem.x.push_back(static_cast<float>((1 + 5 * i) % 13 - 6) / 4);
    for (int i = 0; i < 54; ++i) problem.dy.push_back(static_cast<float>((4 + 3 * i) % 13 - 6) / 4);
    const operation_run::Outcome outcome =
        operation_run::run<Host>(problem, [](const auto& build) { return operation_of<UpsampleBilinear2d<3>>(build); });
    const auto figures = [](reference::Floats values) {
        for (float& value : values) value *= 36;
        return values;
    };
    const reference::Doubles y{-45, -45, -30, -15, 0,  15, 30,  45,  45,  -45, -45, -30, -15, 0,  15, 30,  45,  45,
                               -39, -39, -24, -9,  6,  8,  10,  12,  12,  -33, -33, -18, -3,  12, 1,  -10, -21, -21,
                               -27, -27, -12, 3,   18, -6, -30, -54, -54, -27, -27, -12, 3,   18, -6, -30, -54, -54};
    const reference::Doubles dx{55, -49, -36, 98, 7, -84};
    CHECK(reference::distance(figures(outcome.output), y) < reference::tolerance);
    CHECK(reference::distance(figures(outcome.input_gradient), dx) < reference::tolerance);
}

TEST_CASE("the gradient of UpsampleBilinear2d is its derivative") {
    const GradientCheck check = check_gradients<UpsampleBilinear2d<2>, Host>({3, 4, 2});
    CHECK_MESSAGE(check, check.report());
}
#endif
