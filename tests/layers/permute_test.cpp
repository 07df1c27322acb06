// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/reshape.hpp, cupola/ops/permutation.hpp
//
// Permute moves each element to its place and its gradient back; Reshape changes extents only.
#include "../test.hpp"

#include <cupola/layers/permute.hpp>
#include <cupola/layers/reshape.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/layers/conv_transpose2d.hpp>
#include <cupola/layers/linear.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "layer_run.hpp"

namespace {

static_assert(LayerOn<Permute<2, 0, 1>, AnyDevice> && LayerOn<Reshape<3, -1>, AnyDevice>);
static_assert(Permute<2, 0, 1>::output(Shape{5, 6, 3}).shape == Shape{3, 5, 6});
static_assert(Permute<1, 2, 0>::output(Shape{5, 6, 3}).shape == Shape{6, 3, 5});
static_assert(Permute<1, 0>::output(Shape{5, 6}).shape == Shape{6, 5});
static_assert(description_of<Permute<2, 0, 1>>() == "Permute 2, 0, 1");
static_assert(Reshape<10, 9>::output(Shape{5, 6, 3}).shape == Shape{10, 9});
static_assert(Reshape<-1, 3>::output(Shape{5, 6, 3}).shape == Shape{30, 3});
static_assert(Reshape<-1>::output(Shape{5, 6, 3}).shape == Shape{90});
static_assert(Reshape<1, 3, 5, 6>::output(Shape{90}).shape == Shape{1, 3, 5, 6});
static_assert(description_of<Reshape<-1, 3>>() == "Reshape -1 x 3" && kind_of<Reshape<2>>() == LayerKind::view);

template <class L>
constexpr std::string_view error_of(const Shape& input = {5, 6, 3}) {
    return L::output(input).error;
}
constexpr std::string_view each_once = "expects each axis of its input once, from 0 on",
                           extents = "expects one to four extents, each at least 1, or -1 for one of them";
static_assert(error_of<Permute<>>() == each_once && error_of<Permute<0, 1, 1>>() == each_once &&
              error_of<Permute<1, 2, 3>>() == each_once && error_of<Permute<-1, 0, 1>>() == each_once);
static_assert(error_of<Permute<0, 1, 2, 3, 4>>() == each_once);
static_assert(error_of<Permute<1, 0>>() == "permutes 2 axes, and its input has another number of them");
static_assert(error_of<Permute<1, 0>>({1 << 30, 2}) == "has an extent of more than 2^29");
static_assert(error_of<Reshape<>>() == extents && error_of<Reshape<-1, -1>>() == extents &&
              error_of<Reshape<90, 0>>() == extents && error_of<Reshape<-2>>() == extents &&
              error_of<Reshape<90, 1, 1, 1, 1>>() == extents);
static_assert(error_of<Reshape<5, 6>>() == "expects as many elements as in 5 x 6");
static_assert(error_of<Reshape<180>>() == "expects as many elements as in 180");
static_assert(error_of<Reshape<-1, 7>>() == "expects as many elements as in n x 7");

/// Of an output's place the input's, by a loop over all places.
template <class L, class D, std::size_t rank>
void agrees(const Shape& input, std::int64_t batch, const std::array<std::size_t, rank>& axes) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, std::string(description_of<L>()));
    const auto [problem, outcome] = layer_run::run<L, D>(input, batch, seed);
    const std::int64_t size = input.size();
    reference::Floats expected(problem.x.size()), gradient(problem.x.size());
    for (std::int64_t i = 0; i < batch * size; ++i) {
        std::int64_t place[rank], rest = i % size;
        for (std::size_t a = rank; a-- > 0;) {
            place[a] = rest % input[a];
            rest /= input[a];
        }
        std::int64_t to = i / size;
        for (std::size_t a = 0; a < rank; ++a) to = to * input[axes[a]] + place[axes[a]];
        expected[static_cast<std::size_t>(to)] = problem.x[static_cast<std::size_t>(i)];
        gradient[static_cast<std::size_t>(i)] = problem.dy[static_cast<std::size_t>(to)];
    }
    CHECK(outcome.output == expected);
    CHECK(outcome.input_gradient == gradient);
}

}  // namespace

TYPED_TEST_CASE("Permute moves each element to its place, and each gradient back", D, DevicesAndElements) {
    agrees<Permute<2, 0, 1>, D>({3, 4, 5}, 2, std::array<std::size_t, 3>{2, 0, 1});
    agrees<Permute<1, 2, 0>, D>({2, 7, 3}, 3, std::array<std::size_t, 3>{1, 2, 0});
    agrees<Permute<1, 0, 2>, D>({3, 2, 20}, 2, std::array<std::size_t, 3>{1, 0, 2});
    agrees<Permute<1, 0>, D>({4, 33}, 2, std::array<std::size_t, 2>{1, 0});
    agrees<Permute<0>, D>({9}, 3, std::array<std::size_t, 1>{0});
    agrees<Permute<3, 1, 0, 2>, D>({2, 3, 4, 5}, 2, std::array<std::size_t, 4>{3, 1, 0, 2});
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("gradients pass through Reshape and Permute") {
    struct Net : Sequential<Input<5>, Linear<12>, Reshape<3, 2, 2>, Permute<1, 2, 0>, ConvTranspose2d<4, 2, stride(2)>,
                            Reshape<-1, 8>, Permute<1, 0>, Linear<3, per_position>, Reshape<24>> {};
    static_assert(Net::output == Extents<24>{});
    const GradientCheck check = check_gradients<Net, MeanSquaredError, Host>({.batch = 3});
    CHECK_MESSAGE(check, check.report());
}
#endif
