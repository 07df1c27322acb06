// SPDX-License-Identifier: Apache-2.0
//
// Trainings with parameter groups: what is updated and by how much, with regularisers, accumulation, several replicas and
// devices, and after a resume.
#include <cupola/optim/clipped.hpp>
#include <cupola/optim/parameter_group.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../labelled_samples.hpp"
#include "policies.hpp"

namespace {

struct Net : Sequential<Input<6>, Named<"hidden", Linear<20>>, ReLU, Named<"head", Linear<3>>> {};
using TheLoss = LossCollection<CrossEntropy<3>, WeightDecay<0.5, "hidden", "head">>;
template <class O = Sgd, class A = ConcatMean, class Loss = CrossEntropy<3>>
using Training = DataParallel<Net, Loss, O, A, Host>;

BatchView batch(std::int64_t step, int replica) {
    static const LabelledSamples samples(60, {6}, 3);
    return samples.view((step * 8 + replica * 4) % 56, 4);
}

template <class T>
std::vector<float> trained(const typename T::Options& options, int steps) {
    T training(options);
    for (int s = 0; s < steps; ++s)
        training.step([](std::int64_t step, int replica, HostContext&) { return batch(step, replica); });
    return training.parameters();
}

/// The values of a layer's parameter: 0 the hidden layer, 2 the head; 0 the weight, 1 the bias.
std::vector<float> part(const std::vector<float>& arena, std::size_t layer, std::size_t parameter) {
    const auto begin = arena.begin() + Net::layers[layer].offsets[parameter];
    return {begin, begin + Net::layers[layer].parameters.list[parameter].shape.size()};
}

}  // namespace

TEST_CASE("in one step of SGD each group moves by its own factor of the rate") {
    using T = Training<>;
    const T::Options plain{.batch_size = 4, .optimizer = {.learning_rate = 0.125}};
    T::Options grouped = plain;
    grouped.groups = {{.pattern = "*.bias", .rate = 2}, {.pattern = "hidden.*", .rate = 0.5}};
    T before(plain);
    const auto start = before.parameters(), a = trained<T>(plain, 1), b = trained<T>(grouped, 1);
    const auto moved = [&](const std::vector<float>& arena, std::size_t layer, std::size_t p) {
        std::vector<float> from = part(start, layer, p), to = part(arena, layer, p);
        for (std::size_t i = 0; i < to.size(); ++i) to[i] -= from[i];
        return to;
    };
    for (const std::size_t layer : {0U, 2U}) {
        for (const std::size_t p : {0U, 1U}) {
            const double factor = p == 1 ? 2 : (layer == 0 ? 0.5 : 1);
            const auto x = moved(a, layer, p), y = moved(b, layer, p);
            for (std::size_t i = 0; i < x.size(); ++i)
                CHECK(y[i] == doctest::Approx(factor * static_cast<double>(x[i])).epsilon(1e-4));
        }
    }
}

TEST_CASE("groups whose factors are 1 change no bit") {
    using T = Training<Adam>;
    T::Options options{.replicas = 2, .devices = 2, .batch_size = 4, .optimizer = {.weight_decay = 0.1}};
    const auto plain = trained<T>(options, 5);
    options.groups = {{.pattern = "*.bias"}, {.pattern = "*"}};
    CHECK(trained<T>(options, 5) == plain);
}

TEST_CASE("a frozen group keeps its parameters, whatever the optimiser, and the others are trained") {
    const auto check = [](auto optimizer) {
        CAPTURE(optimizer.description());
        using T = Training<decltype(optimizer), ConcatMean, TheLoss>;
        const typename T::Options options{.replicas = 2,
                                          .devices = 2,
                                          .batch_size = 4,
                                          .optimizer = optimizer,
                                          .groups = {{.pattern = "hidden.weight", .frozen = true}},
                                          .moving_average = {.decay = 0.9}};
        T before(options);
        const auto start = before.parameters(), end = trained<T>(options, 3);
        CHECK(part(end, 0, 0) == part(start, 0, 0));
        CHECK(part(end, 0, 1) != part(start, 0, 1));
        CHECK(part(end, 2, 0) != part(start, 2, 0));
    };
    check(Sgd{.momentum = 0.9, .weight_decay = 0.1});
    check(AdamW{});
    check(Lars{.weight_decay = 0.1});
    check(Clipped<Lamb>{.optimizer = {.weight_decay = 0.1}, .max_norm = 0.1});
}

TEST_CASE("a group's decay is a factor of the loss's weight decay too, in the report and in the gradient") {
    using T = Training<Sgd, ConcatMean, TheLoss>;
    using Half = Training<Sgd, ConcatMean, LossCollection<CrossEntropy<3>, WeightDecay<0.25, "hidden">>>;
    T::Options options{.batch_size = 4};
    options.groups = {{.pattern = "hidden.*", .decay = 0.5}, {.pattern = "head.*", .decay = 0}};
    T training(options);
    Half half({.batch_size = 4});
    for (int s = 0; s < 3; ++s) {
        const auto batches = [](std::int64_t step, int replica, HostContext&) { return batch(step, replica); };
        const auto report = training.step(batches);
        CHECK(report.loss == half.step(batches).loss);
        CHECK(training.parameters() == half.parameters());
    }
}

TEST_CASE("the clipped norm is that of the groups that are updated") {
    using T = Training<Clipped<Sgd>>;
    T::Options options{.batch_size = 4, .optimizer = {.optimizer = {.learning_rate = 1}, .max_norm = 1e-3}};
    options.groups = {{.pattern = "hidden.*", .frozen = true}};
    T before(options);
    const auto start = before.parameters(), end = trained<T>(options, 1);
    double sum = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
        const double moved = static_cast<double>(end[i]) - static_cast<double>(start[i]);
        sum += moved * moved;
    }
    CHECK(std::sqrt(sum) == doctest::Approx(1e-3).epsilon(1e-3));
}

TEST_CASE(
    "groups apply to replicas with parameters of their own, and a run continues from a state with the same bits") {
    using T = Training<Sgd, LocalSgd>;
    T::Options options{.replicas = 2, .batch_size = 4, .optimizer = {.momentum = 0.9}, .averaging = {.every = 4}};
    options.groups = {{.pattern = "head.*", .rate = 3}, {.pattern = "*.bias", .frozen = true}};
    const auto batches = [](std::int64_t step, int replica, HostContext&) { return batch(step, replica); };
    T whole(options), first(options), second(options);
    const auto start = whole.parameters();
    for (int s = 0; s < 6; ++s) whole.step(batches);
    for (int s = 0; s < 3; ++s) first.step(batches);
    second.restore(first.state());
    for (int s = 0; s < 3; ++s) second.step(batches);
    CHECK(second.parameters() == whole.parameters());
    CHECK(second.state().replicas == whole.state().replicas);
    CHECK(part(whole.parameters(), 0, 1) == part(start, 0, 1));
    CHECK(part(whole.parameters(), 2, 1) != part(start, 2, 1));
}
