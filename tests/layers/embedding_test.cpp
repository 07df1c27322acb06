// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/embedding.hpp, cupola/ops/embedding.hpp, cupola/ops/host/embedding.hpp
//
// Embedding: a row of the table per id, the gradient of each row in the order of the positions, and ids that have no row.
#include "../test.hpp"

#include <cupola/layers/embedding.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/compare.hpp"
#include "layer_run.hpp"

namespace {

using Words = Embedding<1000, 64>;
static_assert(LayerOn<Words, AnyDevice>);
static_assert(Words::output(Shape{16}).shape == Shape{16, 64} && Words::output(Shape{1, 16}).shape == Shape{1, 16, 64});
static_assert(parameters_of<Words>(Shape{16}).list[0].shape == Shape{1000, 64});
static_assert(parameters_of<Words>(Shape{16}).list[0].initializer == normal(1.0));
static_assert(parameters_of<Embedding<5, 2, weights(normal(0.1))>>(Shape{16}).list[0].initializer == normal(0.1));
static_assert(traits_of<Words>().reads == ElementType::int32 && traits_of<Words>().ids == 1000);
static_assert(std::string_view(description_of<Words>()) == "Embedding 1000 x 64");
static_assert(std::string_view(description_of<Embedding<9, 2, padding_id(3)>>()) == "Embedding 9 x 2, padding 3");
static_assert(std::string_view(Embedding<0, 4>::output(Shape{1}).error) ==
              "has the number of ids 0, which must be at least 1");
static_assert(std::string_view(Embedding<4, -2>::output(Shape{1}).error) ==
              "has the width -2, which must be at least 1");
static_assert(std::string_view(Embedding<9, 4, padding_id(9)>::output(Shape{1}).error) ==
              "has a padding that is not one of its ids");
static_assert(std::string_view(Embedding<9, 4, padding_id(-1)>::output(Shape{1}).error) ==
              "has a padding that is not one of its ids");
static_assert(std::string_view(Embedding<9, 4, no_bias>::output(Shape{1}).error) ==
              "accepts only the options padding_id(...) and weights(...)");
static_assert(std::string_view(Embedding<3'000'000'000, 4>::output(Shape{1}).error) ==
              "has more ids than int32 has numbers");
static_assert(!Embedding<9, 4>::output(Shape{1, 2, 3, 4}).error.empty());

enum class Ids { any, all_equal, with_bad_ones };

template <std::int64_t count, std::int64_t width, std::int64_t padding, class D>
void agrees(const Shape& input, std::int64_t batch, Ids which) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, count, width);
    const auto positions = static_cast<std::size_t>(batch * input.size());
    std::vector<std::int32_t> ids(positions);
    reference::Random random(seed ^ 1U);
    const auto values = random.normal(static_cast<std::int64_t>(positions), 0.0, 1.0);
    for (std::size_t i = 0; i < positions; ++i) {
        const auto id = static_cast<std::int32_t>(static_cast<std::int64_t>(std::abs(values[i]) * 1000.0F) % count);
        ids[i] = which == Ids::all_equal ? static_cast<std::int32_t>(count - 1) : id;
        if (which == Ids::with_bad_ones && i % 3 == 1) ids[i] = i % 2 == 0 ? -1 : static_cast<std::int32_t>(count);
    }
    using Layer = std::conditional_t<padding == -1, Embedding<count, width>,
                                     Embedding<count, width, padding_id(padding == -1 ? 0 : padding)>>;
    const auto [problem, outcome] = layer_run::run<Layer, D>(input, batch, seed, std::span<const std::int32_t>(ids));
    REQUIRE(outcome.output.size() == positions * static_cast<std::size_t>(width));
    // The sums of a row are in the order of the positions, in float: the bits of a plain loop.
    reference::Floats output(outcome.output.size()), gradient(static_cast<std::size_t>(count * width));
    for (std::size_t i = 0; i < positions; ++i) {
        if (ids[i] < 0 || ids[i] >= count || ids[i] == padding) continue;
        for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c) {
            const std::size_t at = i * static_cast<std::size_t>(width) + c;
            const std::size_t of_table = static_cast<std::size_t>(ids[i] * width) + c;
            output[at] = problem.parameters[0][of_table];
            gradient[of_table] += problem.dy[at];
        }
    }
    CHECK(reference::same_bits(outcome.output, output));
    CHECK(reference::same_bits(outcome.parameter_gradients[0], gradient));
}

}  // namespace

TYPED_TEST_CASE("Embedding copies the rows of its table, and adds up their gradients", D, DevicesAndElements) {
    agrees<10, 8, -1, D>({4}, 3, Ids::any);
    agrees<1, 1, -1, D>({1}, 1, Ids::any);
    agrees<7, 5, -1, D>({3, 5}, 2, Ids::any);
    agrees<3, 200, -1, D>({67}, 1, Ids::any);   // more columns than a warp has
    agrees<2500, 3, -1, D>({40}, 2, Ids::any);  // more rows than there are warps
    agrees<33, 16, -1, D>({100}, 4, Ids::all_equal);
    agrees<10, 8, 4, D>({9}, 3, Ids::any);
    agrees<10, 8, -1, D>({9}, 3, Ids::with_bad_ones);
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradient of Embedding is its derivative, and its ids have none") {
    const GradientCheck check = check_gradients<Embedding<6, 5>, Host>({4});
    CHECK_MESSAGE(check, check.report());
    REQUIRE(check.tensors().size() == 1);
    CHECK(check.tensors()[0].name == "weight");
    const GradientCheck padded = check_gradients<Embedding<6, 3, padding_id(0)>, Host>({2, 5}, {.batch = 3});
    CHECK_MESSAGE(padded, padded.report());
}
#endif
