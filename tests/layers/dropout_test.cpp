// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/layers/dropout2d.hpp, cupola/layers/drop_path.hpp, cupola/ops/shared_dropout.hpp
//
// Dropout: the rates that it accepts, and that its rate and its position in the network reach the operation. Dropout2d and
// DropPath: whole channels, and whole samples, by a second implementation of the random numbers.
#include "../test.hpp"

#include <cupola/layers/drop_path.hpp>
#include <cupola/layers/dropout.hpp>
#include <cupola/layers/dropout2d.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/check_gradients.hpp>
#endif

#include "../reference/dropout.hpp"
#include "layer_run.hpp"

static_assert(Dropout<0.5>::output(Shape{384}).shape == Shape{384});
static_assert(Dropout<0.0>::output(Shape{3, 3, 8}).shape == Shape{3, 3, 8});
static_assert(parameters_of<Dropout<0.5>>(Shape{384}).count == 0);
static_assert(!traits_of<Dropout<0.5>>().backward_reads_input && !traits_of<Dropout<0.5>>().backward_reads_output,
              "the mask is drawn again");
static_assert(std::string_view(Dropout<1.0>::output(Shape{384}).error) == "has a rate outside [0, 1)");
static_assert(std::string_view(Dropout<-0.1>::output(Shape{384}).error) == "has a rate outside [0, 1)");
static_assert(Dropout2d<0.5>::output(Shape{3, 3, 8}).shape == Shape{3, 3, 8});
static_assert(std::string_view(Dropout2d<0.5>::output(Shape{384}).error) == "expects height x width x channels");
static_assert(std::string_view(Dropout2d<1.0>::output(Shape{3, 3, 8}).error) == "has a rate outside [0, 1)");
static_assert(DropPath<0.5>::output(Shape{384}).shape == Shape{384});
static_assert(std::string_view(DropPath<-0.1>::output(Shape{384}).error) == "has a rate outside [0, 1)");
static_assert(traits_of<Dropout2d<0.5>>().only_in_training && traits_of<DropPath<0.5>>().only_in_training);
static_assert(description_of<Dropout2d<0.5>>() == "Dropout2d 0.5" && description_of<DropPath<0.1>>() == "DropPath 0.1");
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

namespace {

/// A layer that draws one number per sample, or one per channel of a sample.
template <class L, class D>
void drops_together(const Shape& input, std::int64_t batch, bool per_channel, float rate) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, to_string(input), batch);
    operation_run::Problem problem = layer_run::problem_of<D>(input, input, {}, batch, seed, {});
    problem.layer = 5;
    problem.step = 17;
    problem.first_sample = 1000;
    const auto run = [&] {
        return operation_run::run<D>(problem, [](const auto& build) { return operation_of<L>(build); });
    };
    const auto channels = static_cast<std::size_t>(input.channels());
    const reference::Doubles factors =
        reference::Dropout{seed, 5, 17, rate}.factors(1000, batch, per_channel ? input.channels() : 1);
    const operation_run::Outcome outcome = run();
    reference::Doubles y, dx;
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        const std::size_t sample = i / static_cast<std::size_t>(input.size());
        const double factor = factors[per_channel ? sample * channels + i % channels : sample];
        y.push_back(factor * static_cast<double>(problem.x[i]));
        dx.push_back(factor * static_cast<double>(problem.dy[i]));
    }
    CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, dx) < operation_run::tolerance<D>);

    problem.training = problem.made_for_training = false;
    CHECK(reference::same_bits(run().output, problem.x));
}

}  // namespace

TYPED_TEST_CASE("Dropout2d drops channels of a sample and DropPath samples, in training", D, DevicesAndElements) {
    for (const std::int64_t batch : {1, 13}) {
        drops_together<Dropout2d<0.4>, D>({3, 2, 5}, batch, true, 0.4F);
        drops_together<Dropout2d<0.4>, D>({2, 3, 32}, batch, true, 0.4F);
        drops_together<Dropout2d<0.0>, D>({2, 2, 8}, batch, true, 0.0F);
        drops_together<DropPath<0.4>, D>({3, 2, 5}, batch, false, 0.4F);
        drops_together<DropPath<0.4>, D>({4, 16}, batch, false, 0.4F);
        drops_together<DropPath<0.4>, D>({67}, batch, false, 0.4F);
    }
}

TYPED_TEST_CASE("what DropPath drops is 0 where it was not finite", D, Devices) {
    operation_run::Problem problem;
    problem.input = problem.output = {2};
    problem.batch = 64;
    problem.x = problem.dy = reference::Floats(128, std::numeric_limits<float>::infinity());
    const auto outcome =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<DropPath<0.5>>(build); });
    for (std::size_t n = 0; n < 64; ++n) {
        CHECK_FALSE(std::isnan(outcome.output[2 * n]));
        CHECK(outcome.output[2 * n] == outcome.output[2 * n + 1]);
    }
    CHECK(reference::same_bits(outcome.input_gradient, outcome.output));
}

TYPED_TEST_CASE("Dropout2d and DropPath ask for the memory that a pass of training writes where no backward follows", D,
                DevicesAndElements) {
    const auto check = []<class L>(L) {
        operation_run::Problem problem = layer_run::problem_of<D>({3, 2, 5}, {3, 2, 5}, {}, 7, 1, {});
        const auto run = [&] {
            return operation_run::run<D>(problem, [](const auto& build) { return operation_of<L>(build); }).output;
        };
        const reference::Floats with_backward = run();
        problem.made_for_training = problem.made_for_predictions = false;
        CHECK(reference::same_bits(run(), with_backward));
    };
    check(Dropout2d<0.4>{});
    check(DropPath<0.4>{});
}

#ifndef CUPOLA_TEST_CUDA
namespace {

/// No node of it has saved memory, and the convolution's packed weights lie behind that.
struct BeginsWithDropout : Sequential<Input<4, 4, 6>, Dropout2d<0.2>, Conv2d<5, 3>, DropPath<0.3>, Flatten, Linear<3>> {
};

}  // namespace

TEST_CASE("a network that begins with Dropout2d, whose input has no gradient, has the gradients of the whole network") {
    const GradientCheck check = check_gradients<BeginsWithDropout, CrossEntropy<3>, Host>({.batch = 3});
    CHECK_MESSAGE(check, check.report());
}

TEST_CASE("the gradients of Dropout2d and DropPath are their derivatives") {
    const GradientCheck of_channels = check_gradients<Dropout2d<0.4>, Host>({3, 2, 5}),
                        of_samples = check_gradients<DropPath<0.4>, Host>({3, 2, 5});
    CHECK_MESSAGE(of_channels, of_channels.report());
    CHECK_MESSAGE(of_samples, of_samples.report());
}
#endif
