// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/from_bytes.hpp, cupola/ops/from_bytes.hpp, cupola/ops/host/from_bytes.hpp
//
// FromBytes: y = (x - mean) / deviation, with one constant for all or one per channel.
#include "../test.hpp"

#include <cupola/layers/from_bytes.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "layer_run.hpp"

namespace {

static_assert(LayerOn<FromBytes<>, AnyDevice>);
static_assert(FromBytes<>::output(Shape{4, 5, 3}).shape == Shape{4, 5, 3});
static_assert(traits_of<FromBytes<>>().reads == ElementType::uint8 && parameters_of<FromBytes<>>(Shape{4}).count == 0);
static_assert(std::string_view(FromBytes<means(1, 2)>::output(Shape{4, 5, 3}).error) ==
              "has means or deviations that are not one for all or one per channel");
static_assert(std::string_view(FromBytes<deviations(1, 0, 2)>::output(Shape{4, 5, 3}).error) ==
              "has a deviation that is not above 0");
static_assert(std::string_view(FromBytes<no_bias>::output(Shape{4, 5, 3}).error) ==
              "accepts only the options means(...) and deviations(...)");

template <class Layer, class D>
void agrees(const Shape& input, std::int64_t batch, const std::vector<double>& mean,
            const std::vector<double>& deviation) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(batch * input.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>((i * 37 + seed) % 256);
    const auto [problem, outcome] =
        layer_run::run<Layer, D, std::uint8_t>(input, batch, seed, std::span<const std::uint8_t>(bytes));
    reference::Doubles expected(bytes.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const std::size_t c = i % static_cast<std::size_t>(input.channels());
        expected[i] =
            (static_cast<double>(bytes[i]) - mean[mean.size() == 1 ? 0 : c]) / deviation[deviation.size() == 1 ? 0 : c];
    }
    REQUIRE(outcome.output.size() == bytes.size());
    CHECK(reference::distance(outcome.output, expected) < operation_run::tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("FromBytes shifts and scales every byte", D, DevicesAndElements) {
    agrees<FromBytes<>, D>({4, 6, 3}, 2, {0}, {255});
    agrees<FromBytes<means(128), deviations(128)>, D>({1}, 1, {128}, {128});
    agrees<FromBytes<means(125.3, 123.0, 113.9), deviations(63.0, 62.1, 66.7)>, D>({9, 7, 3}, 5, {125.3, 123.0, 113.9},
                                                                                   {63.0, 62.1, 66.7});
    agrees<FromBytes<means(1, 2, 3, 4)>, D>({33, 31, 4}, 2, {1, 2, 3, 4}, {255});
    agrees<FromBytes<means(7), deviations(2, 3)>, D>({129, 2}, 1, {7}, {2, 3});
}

static_assert(!FromBytes<means(__builtin_nan(""))>::output(Shape{2, 2, 3}).error.empty() &&
              !FromBytes<deviations(__builtin_inf())>::output(Shape{2, 2, 3}).error.empty() &&
              !FromBytes<deviations(1e-60)>::output(Shape{2, 2, 3}).error.empty() &&
              !FromBytes<means(1), means(2)>::output(Shape{2, 2, 3}).error.empty());

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("FromBytes follows the rules of an operation, and has no gradient") {
    const GradientCheck check = check_gradients<FromBytes<means(3, 4, 5)>, Host>({4, 5, 3});
    CHECK_MESSAGE(check, check.report());
    CHECK(check.tensors().empty());
}
#endif
