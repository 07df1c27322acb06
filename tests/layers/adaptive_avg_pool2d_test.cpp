// SPDX-License-Identifier: Apache-2.0
//
// AdaptiveAvgPool2d against the matrices of its map, and PyTorch's values.
#include "../test.hpp"

#include <cupola/layers/adaptive_avg_pool2d.hpp>

#include "../reference/compare.hpp"
#include "separable_map.hpp"

namespace {

static_assert(LayerOn<AdaptiveAvgPool2d<7>, AnyDevice>);
static_assert(AdaptiveAvgPool2d<7>::output(Shape{20, 5, 16}).shape == Shape{7, 7, 16});
static_assert(AdaptiveAvgPool2d<1, 4>::output(Shape{3, 9, 2}).shape == Shape{1, 4, 2});
static_assert(description_of<AdaptiveAvgPool2d<1, 4>>() == "AdaptiveAvgPool2d 1 x 4");
static_assert(std::string_view(AdaptiveAvgPool2d<2, 0>::output(Shape{4, 4, 2}).error) ==
              "has the number of columns 0, which must be at least 1");
static_assert(std::string_view(AdaptiveAvgPool2d<2>::output(Shape{16}).error) == "expects height x width x channels");
static_assert(std::string_view(AdaptiveAvgPool2d<1 << 30, 1>::output(Shape{4, 4, 2}).error) ==
              "has an input or an output of more than 2^29 rows or columns");

static_assert(std::string_view(AdaptiveAvgPool2d<1 << 20, 1>::output(Shape{1 << 12, 4, 2}).error) ==
              "has an input whose rows or columns times those of the output are more than 2^31");

/// The share of input k in the mean that is output i.
double share(std::int64_t inputs, std::int64_t outputs, std::int64_t i, std::int64_t k) {
    const double step = static_cast<double>(inputs) / static_cast<double>(outputs);
    const double begin = std::floor(static_cast<double>(i) * step + 1e-9),
                 end = std::ceil(static_cast<double>(i + 1) * step - 1e-9);
    return static_cast<double>(k) >= begin && static_cast<double>(k) < end ? 1 / (end - begin) : 0.0;
}

template <class L, class D>
void agrees(const Shape& input, std::int64_t batch) {
    separable_map::agrees<L, D>(input, batch, share, share);
}

}  // namespace

TYPED_TEST_CASE("AdaptiveAvgPool2d is the mean of windows that cover the image, and its gradient the transposed map", D,
                DevicesAndElements) {
    agrees<AdaptiveAvgPool2d<3>, D>({6, 9, 16}, 2);
    agrees<AdaptiveAvgPool2d<3, 4>, D>({7, 5, 3}, 3);  // windows that overlap
    agrees<AdaptiveAvgPool2d<1>, D>({5, 4, 33}, 2);
    agrees<AdaptiveAvgPool2d<1, 7>, D>({2, 300, 1}, 1);
    agrees<AdaptiveAvgPool2d<5, 7>, D>({3, 2, 8}, 1);  // an image that is smaller
    agrees<AdaptiveAvgPool2d<4, 3>, D>({4, 3, 2}, 1);
}

#ifndef CUPOLA_TEST_CUDA
// Computed by PyTorch 2.15 in double; the figures are 24ths.
TEST_CASE("AdaptiveAvgPool2d gives PyTorch's values") {
    operation_run::Problem problem;
    problem.input = {5, 4, 1};
    problem.output = {3, 3, 1};
    for (int i = 0; i < 20; ++i) problem.x.push_back(static_cast<float>((1 + 5 * i) % 13 - 6) / 4);
    for (int i = 0; i < 9; ++i) problem.dy.push_back(static_cast<float>((4 + 3 * i) % 13 - 6) / 4);
    const operation_run::Outcome outcome =
        operation_run::run<Host>(problem, [](const auto& build) { return operation_of<AdaptiveAvgPool2d<3>>(build); });
    const auto figures = [](reference::Floats values) {
        for (float& value : values) value *= 24;
        return values;
    };
    const reference::Doubles y{-13.5, -3, 7.5, -9, -5, 12, -4.5, -13.5, -3};
    const reference::Doubles dx{-3, -1.5, 7.5, 6, -9, -10.5, 4.5, 6, -6, -9, -3, 0, -1.5, 4.5, 0, -6, 4.5, 13.5, 3, -6};
    CHECK(reference::distance(figures(outcome.output), y) < reference::tolerance);
    CHECK(reference::distance(figures(outcome.input_gradient), dx) < reference::tolerance);
}
#endif
