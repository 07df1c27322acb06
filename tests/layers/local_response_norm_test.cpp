// SPDX-License-Identifier: Apache-2.0
//
// LocalResponseNorm: its extents, and that its numbers reach the operation in the right order.
#include "../test.hpp"

#include <cupola/layers/local_response_norm.hpp>

#include "../reference/local_response_norm.hpp"
#include "layer_run.hpp"

namespace {

static_assert(LocalResponseNorm<4>::output(Shape{12, 12, 64}).shape == Shape{12, 12, 64});
static_assert(parameters_of<LocalResponseNorm<4>>(Shape{12, 12, 64}).count == 0);
static_assert(traits_of<LocalResponseNorm<4>>().backward_reads_input &&
              !traits_of<LocalResponseNorm<4>>().backward_reads_output);
static_assert(std::string_view(LocalResponseNorm<-1>::output(Shape{12, 12, 64}).error) == "has a negative radius");
static_assert(!LocalResponseNorm<4, -0.1>::output(Shape{12, 12, 64}).error.empty() &&
              !LocalResponseNorm<4, 0.1, __builtin_nan("")>::output(Shape{12, 12, 64}).error.empty() &&
              !LocalResponseNorm<4, 0.1, 0.5, __builtin_inf()>::output(Shape{12, 12, 64}).error.empty());
static_assert(std::string_view(LocalResponseNorm<4>::output(Shape{64}).error) == "expects height x width x channels");

template <class L, class D>
void agrees(const reference::LocalResponseNorm& r) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const auto [problem, outcome] = layer_run::run<L, D>({5, 4, r.channels}, 3, seed);
    CHECK(reference::distance(outcome.output, r.forward(problem.x)) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, r.input_gradient(problem.dy, problem.x)) <
          operation_run::tolerance<D>);
}

}  // namespace

TYPED_TEST_CASE("LocalResponseNorm computes the operation of its template arguments", D, DevicesAndElements) {
    agrees<LocalResponseNorm<4>, D>({64, 4, 1.0, 0.001 / 9.0, 0.75});
    agrees<LocalResponseNorm<2, 0.25, 0.5, 2.0>, D>({13, 2, 2.0, 0.25, 0.5});
}
