// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/ops/prelu.hpp, cupola/layers/scale_channels.hpp
//
// PReLU, of one weight or one per channel, and ScaleChannels, whose factors apply to positive values too: both gradients
// against plain loops in double, and options that are rejected.
#include "../test.hpp"

#include <cupola/layers/prelu.hpp>
#include <cupola/layers/scale_channels.hpp>
#ifndef CUPOLA_TEST_CUDA
#include <cupola/net/check_gradients.hpp>
#endif

#include "layer_run.hpp"

using OnePerChannel = PReLU<weight_per_channel>;
static_assert(PReLU<>::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64});
static_assert(parameters_of<PReLU<>>(Shape{24, 24, 64}).list[0].shape == Shape{1});
static_assert(parameters_of<OnePerChannel>(Shape{24, 24, 64}).list[0].shape == Shape{64});
static_assert(parameters_of<OnePerChannel>(Shape{384}).list[0].shape == Shape{384});
static_assert(parameters_of<PReLU<>>(Shape{3}).count == 1);
static_assert(std::string_view(parameters_of<PReLU<>>(Shape{3}).list[0].name) == "weight");
static_assert(parameters_of<PReLU<>>(Shape{3}).list[0].initializer == constant(0.25));
static_assert(parameters_of<PReLU<weights(constant(0.5))>>(Shape{3}).list[0].initializer == constant(0.5));
static_assert(traits_of<PReLU<>>().backward_reads_input && !traits_of<PReLU<>>().backward_reads_output);
static_assert(std::string_view(PReLU<>::description) == "PReLU");
static_assert(std::string_view(OnePerChannel::description) == "PReLU, one weight per channel");
static_assert(std::string_view(PReLU<no_bias>::output(Shape{3}).error) ==
              "accepts only the options weight_per_channel and weights(...)");
static_assert(std::string_view(PReLU<weight_per_channel, weight_per_channel>::output(Shape{3}).error) ==
              "is given an option twice");

static_assert(ScaleChannels<>::output(Shape{24, 24, 64}).shape == Shape{24, 24, 64});
static_assert(parameters_of<ScaleChannels<>>(Shape{3}).list[0].initializer == constant(1));
static_assert(parameters_of<ScaleChannels<1e-6>>(Shape{3}).list[0].initializer == constant(1e-6));
static_assert(parameters_of<ScaleChannels<>>(Shape{5, 3}).list[0].shape == Shape{3});
static_assert(std::string_view(parameters_of<ScaleChannels<>>(Shape{3}).list[0].name).empty());
// In files [64, 1, 1], torchvision's layer_scale.
static_assert(parameters_of<ScaleChannels<>>(Shape{24, 24, 64}).list[0].shape == Shape{1, 1, 64} &&
              parameters_of<ScaleChannels<>>(Shape{24, 24, 64}).list[0].layout == FileLayout::channels_first);
static_assert(traits_of<ScaleChannels<>>().reads_input_for_parameters &&
              !traits_of<ScaleChannels<>>().backward_reads_output);
static_assert(description_of<ScaleChannels<>>() == "ScaleChannels");
static_assert(description_of<ScaleChannels<1e-6>>() == "ScaleChannels, initially 0.000001");

namespace {

/// dw in double, of `weights` weights; a channel is the last extent.
reference::Doubles weight_gradient(const operation_run::Problem& problem, std::size_t weights, bool of_all) {
    const auto channels = static_cast<std::size_t>(problem.input.channels());
    reference::Doubles sums(weights);
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        if (problem.x[i] > 0 && !of_all) continue;
        sums[weights == 1 ? 0 : i % channels] += static_cast<double>(problem.x[i]) * static_cast<double>(problem.dy[i]);
    }
    return sums;
}

template <class L, class D, bool of_all = false>
void agrees(const Shape& input, std::int64_t batch) {
    const std::uint64_t seed = reference::fresh_seed();
    CAPTURES(seed, to_string(input), batch);
    const layer_run::Run run = layer_run::run<L, D>(input, batch, seed);
    const operation_run::Problem& problem = run.problem;
    const operation_run::Outcome& outcome = run.outcome;
    const reference::Floats& weight = problem.parameters[0];
    const auto channels = static_cast<std::size_t>(input.channels());
    reference::Doubles y, dx;
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
        const bool whole = problem.x[i] > 0 && !of_all;
        const double by = whole ? 1.0 : static_cast<double>(weight[weight.size() == 1 ? 0 : i % channels]);
        y.push_back(by * static_cast<double>(problem.x[i]));
        dx.push_back(by * static_cast<double>(problem.dy[i]));
    }
    CHECK(reference::distance(outcome.output, y) < operation_run::tolerance<D>);
    CHECK(reference::distance(outcome.input_gradient, dx) < operation_run::tolerance<D>);
    const reference::Doubles dw = weight_gradient(problem, weight.size(), of_all);
    const auto terms = [&] {
        operation_run::Problem same_signs = problem;
        same_signs.dy = reference::magnitudes(problem.dy);
        if (of_all) same_signs.x = reference::magnitudes(problem.x);
        return weight_gradient(same_signs, weight.size(), of_all);
    };
    CHECK(reference::distance_of_sums_at(dw, outcome.parameter_gradients[0], dw, terms) < reference::tolerance);
}

}  // namespace

TYPED_TEST_CASE("PReLU and ScaleChannels compute the operation of their template arguments", D, DevicesAndElements) {
    for (const std::int64_t batch : {1, 3}) {
        agrees<PReLU<>, D>({7, 5, 3}, batch);
        agrees<PReLU<>, D>({5, 4, 32}, batch);
        agrees<PReLU<>, D>({1}, batch);
        agrees<PReLU<>, D>({67}, batch);
        agrees<OnePerChannel, D>({7, 5, 3}, batch);
        agrees<OnePerChannel, D>({5, 4, 32}, batch);
        agrees<OnePerChannel, D>({1}, batch);
        agrees<OnePerChannel, D>({67}, batch);
        agrees<ScaleChannels<>, D, true>({7, 5, 3}, batch);
        agrees<ScaleChannels<>, D, true>({4, 32}, batch);
        agrees<ScaleChannels<>, D, true>({1}, batch);
    }
}

TYPED_TEST_CASE("PReLU adds to the gradient of its weight, and leaves out what is not needed", D, Devices) {
    operation_run::Problem problem;
    problem.input = problem.output = {2, 1, 2};
    problem.x = {-1, 2, -3, -4};
    problem.dy = {1, 10, 100, 1000};
    problem.parameters = {{0.5F, -2}};
    problem.accumulate = true;
    problem.gradients_before = {{7, 8}};
    problem.input_gradient = false;
    const auto outcome =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<OnePerChannel>(build); });
    CHECK(outcome.output == reference::Floats{-0.5F, 2, -1.5F, 8});
    CHECK(outcome.parameter_gradients[0] == reference::Floats{7 - 1 - 300, 8 - 4000});
    const auto scaled =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<ScaleChannels<>>(build); });
    CHECK(scaled.output == reference::Floats{-0.5F, -4, -1.5F, 8});
    CHECK(scaled.parameter_gradients[0] == reference::Floats{7 - 1 - 300, 8 + 20 - 4000});
    for (const float value : outcome.input_gradient) CHECK(std::isnan(value));

    problem.parameters = {{0.5F}};
    problem.gradients_before = {{7}};
    const auto one = operation_run::run<D>(problem, [](const auto& build) { return operation_of<PReLU<>>(build); });
    CHECK(one.parameter_gradients[0] == reference::Floats{7 - 1 - 300 - 4000});
}

TYPED_TEST_CASE("PReLU and ScaleChannels have PyTorch's values at the ends of the range, and propagate a NaN", D,
                Devices) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    operation_run::Problem problem;
    problem.input = problem.output = {5};
    problem.x = {inf, -inf, 0.0F, -0.0F, std::numeric_limits<float>::quiet_NaN()};
    problem.dy = {1, 1, 1, 1, 1};
    problem.parameters = {{0.25F}};
    const auto outcome = operation_run::run<D>(problem, [](const auto& build) { return operation_of<PReLU<>>(build); });
    CHECK(outcome.output[0] == inf);
    CHECK(outcome.output[1] == -inf);
    CHECK(outcome.output[2] == 0.0F);
    CHECK(std::isnan(outcome.output[4]));
    CHECK(outcome.input_gradient == reference::Floats{1, 0.25F, 0.25F, 0.25F, 0.25F});
    CHECK(std::isnan(outcome.parameter_gradients[0][0]));

    problem.parameters = {{0.25F, 0.25F, 0.25F, 0.25F, 0.25F}};
    const auto scaled =
        operation_run::run<D>(problem, [](const auto& build) { return operation_of<ScaleChannels<>>(build); });
    CHECK(reference::same_bits(std::span(scaled.output).first(4), reference::Floats{inf, -inf, 0.0F, -0.0F}));
    CHECK(std::isnan(scaled.output[4]));
    CHECK(scaled.input_gradient == reference::Floats{0.25F, 0.25F, 0.25F, 0.25F, 0.25F});
}

#ifndef CUPOLA_TEST_CUDA
TEST_CASE("the gradients of PReLU and ScaleChannels are their derivatives") {
    const auto check = [](const GradientCheck& result) { CHECK_MESSAGE(result, result.report()); };
    check(check_gradients<PReLU<>, Host>({4, 4, 3}));
    check(check_gradients<OnePerChannel, Host>({4, 4, 3}));
    check(check_gradients<ScaleChannels<>, Host>({4, 4, 3}));
}
#endif
