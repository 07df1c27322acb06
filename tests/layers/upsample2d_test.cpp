// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/upsampling.hpp, cupola/ops/host/upsampling.hpp, cupola/ops/upsampling.hpp
//
// Upsample2d: every pixel of the output is that of the input, and every gradient the sum of its square's.
#include "../test.hpp"

#include <cupola/layers/upsample2d.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "layer_run.hpp"

namespace {

static_assert(LayerOn<Upsample2d<2>, AnyDevice>);
static_assert(Upsample2d<2>::output(Shape{8, 5, 16}).shape == Shape{16, 10, 16});
static_assert(Upsample2d<3>::output(Shape{1, 1, 1}).shape == Shape{3, 3, 1});
static_assert(Upsample2d<1>::output(Shape{4, 3, 2}).shape == Shape{4, 3, 2});
static_assert(parameters_of<Upsample2d<2>>(Shape{8, 8, 3}).count == 0);
static_assert(std::string_view(Upsample2d<0>::output(Shape{4, 4, 2}).error) ==
              "has the factor 0, which must be at least 1");
static_assert(std::string_view(Upsample2d<2>::output(Shape{16}).error) == "expects height x width x channels");

template <std::int64_t factor, class D>
void agrees(const Shape& input, std::int64_t batch) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, factor);
    const auto [problem, outcome] = layer_run::run<Upsample2d<factor>, D>(input, batch, seed);
    const std::int64_t height = input.height(), width = input.width(), channels = input.channels();
    reference::Doubles expected(problem.dy.size()), gradient(problem.x.size());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(expected.size()); ++i) {
        const std::int64_t c = i % channels, column = i / channels % (width * factor),
                           row = i / (channels * width * factor) % (height * factor),
                           sample = i / (channels * width * factor * height * factor);
        const auto from =
            static_cast<std::size_t>(((sample * height + row / factor) * width + column / factor) * channels + c);
        expected[static_cast<std::size_t>(i)] = static_cast<double>(problem.x[from]);
        gradient[from] += static_cast<double>(problem.dy[static_cast<std::size_t>(i)]);
    }
    CHECK(reference::distance(outcome.output, expected) == 0);
    CHECK(reference::distance(outcome.input_gradient, gradient) < operation_run::tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("Upsample2d repeats every pixel, and adds the gradients of its square", D, DevicesAndElements) {
    agrees<2, D>({8, 6, 16}, 3);
    agrees<2, D>({7, 5, 3}, 2);
    agrees<2, D>({1, 1, 1}, 1);
    agrees<3, D>({2, 5, 8}, 1);
    agrees<1, D>({4, 3, 5}, 2);
    agrees<2, D>({3, 2, 130}, 1);  // more channels than are added at a time
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradient of Upsample2d is its derivative") {
    const GradientCheck twice = check_gradients<Upsample2d<2>, Host>({4, 5, 3});
    CHECK_MESSAGE(twice, twice.report());
    const GradientCheck thrice = check_gradients<Upsample2d<3>, Host>({1, 2, 2});
    CHECK_MESSAGE(thrice, thrice.report());
}
#endif
