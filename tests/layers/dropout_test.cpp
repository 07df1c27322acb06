// SPDX-License-Identifier: Apache-2.0
//
// Dropout: the rates that it accepts, and that its rate and its position in the network reach the operation.
#include "../test.hpp"

#include <cupola/layers/dropout.hpp>

#include "../reference/dropout.hpp"
#include "layer_run.hpp"

static_assert(Dropout<0.5>::output(Shape{384}).shape == Shape{384});
static_assert(Dropout<0.0>::output(Shape{3, 3, 8}).shape == Shape{3, 3, 8});
static_assert(parameters_of<Dropout<0.5>>(Shape{384}).count == 0);
static_assert(!traits_of<Dropout<0.5>>().backward_reads_input && !traits_of<Dropout<0.5>>().backward_reads_output,
              "the mask is drawn again");
static_assert(std::string_view(Dropout<1.0>::output(Shape{384}).error) == "has a rate outside [0, 1)");
static_assert(std::string_view(Dropout<-0.1>::output(Shape{384}).error) == "has a rate outside [0, 1)");
#ifndef __CUDACC__  // nvcc compares no NaN in a constant
static_assert(std::string_view(Dropout<std::numeric_limits<double>::quiet_NaN()>::output(Shape{384}).error) ==
              "has a rate outside [0, 1)");
#endif

TYPED_TEST_CASE("Dropout computes the operation of its template arguments", D, DevicesAndElements) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURE(seed);
    const auto [problem, outcome] = layer_run::run<Dropout<0.25>, D>({101}, 5, seed);
    reference::Doubles expected = reference::Dropout{seed, 0, 0, 0.25F}.factors(0, 5, 101);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= static_cast<double>(problem.x[i]);
    CHECK(reference::distance(outcome.output, expected) < operation_run::tolerance<D>);
}
