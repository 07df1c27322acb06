// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/cuda/option_a_shortcut.hpp, cupola/ops/host/option_a_shortcut.hpp, cupola/ops/option_a_shortcut.hpp
//
// OptionAShortcut: the mean of windows side by side, between channels of zeros.
#include "../test.hpp"

#include <cupola/layers/option_a_shortcut.hpp>

#include "../reference/pooling.hpp"
#include "layer_run.hpp"

namespace {

static_assert(LayerOn<OptionAShortcut<32, 2>, AnyDevice>);
static_assert(OptionAShortcut<32, 2>::output(Shape{32, 32, 16}).shape == Shape{16, 16, 32});
static_assert(OptionAShortcut<20>::output(Shape{7, 5, 16}).shape == Shape{7, 5, 20});
static_assert(OptionAShortcut<16, 3>::output(Shape{7, 6, 16}).shape == Shape{3, 2, 16});
static_assert(parameters_of<OptionAShortcut<32, 2>>(Shape{32, 32, 16}).count == 0);
static_assert(std::string_view(OptionAShortcut<0>::output(Shape{4, 4, 2}).error) ==
              "has the number of channels 0, which must be at least 1");
static_assert(std::string_view(OptionAShortcut<4, -1>::output(Shape{4, 4, 2}).error) ==
              "has the stride -1, which must be at least 1");
static_assert(std::string_view(OptionAShortcut<4>::output(Shape{16}).error) == "expects height x width x channels");
static_assert(std::string_view(OptionAShortcut<8>::output(Shape{4, 4, 16}).error) ==
              "has fewer channels than its input, but it can only add channels");
static_assert(std::string_view(OptionAShortcut<19>::output(Shape{4, 4, 16}).error) ==
              "adds as many channels before those of the input as after them, but the number to add is odd");

template <std::int64_t channels, std::int64_t stride, class D>
void agrees(const Shape& input) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    constexpr std::int64_t batch = 3;
    const auto [problem, outcome] = layer_run::run<OptionAShortcut<channels, stride>, D>(input, batch, seed);
    const reference::Pooling pool{batch, reference::same(input.height(), stride, stride),
                                  reference::same(input.width(), stride, stride), input.channels(), false};
    const auto inner = static_cast<std::size_t>(input.channels()), outer = static_cast<std::size_t>(channels),
               before = (outer - inner) / 2;
    const reference::Doubles pooled = pool.forward(problem.x);
    reference::Doubles expected(pooled.size() / inner * outer);
    reference::Floats inner_gradient(pooled.size());
    for (std::size_t i = 0; i < pooled.size(); ++i) {
        const std::size_t at = i / inner * outer + before + i % inner;
        expected[at] = pooled[i];
        inner_gradient[i] = problem.dy[at];
    }
    CHECK(reference::distance(outcome.output, expected) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, pool.input_gradient(inner_gradient, problem.x)) <
          operation_run::tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("OptionAShortcut is an average pool between channels of zeros", D, DevicesAndElements) {
    agrees<32, 2, D>({8, 6, 16});
    agrees<9, 2, D>({7, 5, 3});  // the last windows are partly outside
    agrees<8, 3, D>({8, 7, 4});
    agrees<20, 1, D>({3, 4, 16});
    agrees<5, 2, D>({4, 4, 5});
}
