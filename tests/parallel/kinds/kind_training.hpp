// SPDX-License-Identifier: Apache-2.0
//
// A training whose loss is the quadratic of rules.hpp, for tests that compare a kind of agreement with the rules, in one
// process, in several and on other devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cupola/cupola.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/optimizers.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "rules.hpp"

namespace rules {

/// y = w . x with one sample per coordinate, sqrt(3 / 2 h_j) e_j, whose mean squared error has the gradient h (w - target).
struct Net : cupola::Sequential<cupola::Input<3>, cupola::Linear<1, cupola::no_bias>> {};

template <class Averaging, class D>
using KindTraining = cupola::DataParallel<Net, cupola::MeanSquaredError, cupola::NesterovVelocity, Averaging, D>;

/// The batches of a step, in the host's memory.
class Batches {
public:
    explicit Batches(int replicas) : samples_(static_cast<std::size_t>(replicas)), targets_(samples_.size()) {}

    void set(int step) {
        const Quadratic quadratic;
        for (std::size_t r = 0; r < samples_.size(); ++r) {
            samples_[r].assign(coordinates * coordinates, 0.0F);
            targets_[r].assign(coordinates, 0.0F);
            for (std::size_t j = 0; j < coordinates; ++j) {
                const double scale = std::sqrt(quadratic.curvature[j] * 1.5);
                samples_[r][(coordinates + 1) * j] = static_cast<float>(scale);
                targets_[r][j] = static_cast<float>(scale * quadratic.target(static_cast<int>(r), step, j));
            }
        }
    }
    /// The batch of a replica, or its first samples.
    [[nodiscard]] cupola::BatchView of(int replica, std::int64_t size = coordinates) const {
        const auto r = static_cast<std::size_t>(replica);
        return {samples_[r].data(), cupola::Shape{coordinates}, targets_[r].data(), cupola::Shape{1}, size};
    }

private:
    std::vector<std::vector<float>> samples_, targets_;
};

template <class Training>
void start(Training& training) {
    std::vector<float> values(static_cast<std::size_t>(Net::parameter_elements));
    const Quadratic quadratic;
    for (std::size_t j = 0; j < coordinates; ++j) values[j] = static_cast<float>(quadratic.start[j]);
    training.set_parameters(values);
}

/// The largest difference of the centre to that of the rule in some steps, by the largest magnitude of the trajectory.
template <class D, class Averaging>
double error_of(const Settings& settings, const Averaging& averaging, int devices, int steps = 100) {
    KindTraining<Averaging, D> training(
        {.replicas = settings.replicas,
         .devices = devices,
         .batch_size = coordinates,
         .optimizer = {.learning_rate = settings.rate,
                       .momentum = has_momentum(settings.rule) ? settings.momentum : 0.0},
         .averaging = averaging});
    start(training);
    Training expected(settings);
    Batches batches(settings.replicas);
    double largest = 0, error = 0;
    for (int step = 0; step < steps; ++step) {
        batches.set(step);
        training.step([&](std::int64_t, int replica, auto&) { return batches.of(replica); });
        expected.step();
        largest = std::max(largest, magnitude(expected));
        const std::vector<float> centre = training.parameters();
        for (std::size_t j = 0; j < coordinates; ++j)
            error = std::max(error, std::abs(expected.centre[j] - static_cast<double>(centre[j])));
    }
    return error / largest;
}

[[nodiscard]] inline cupola::Sgd outer_sgd() { return {.learning_rate = 0.7, .momentum = 0.9, .nesterov = true}; }

/// Calls visit(rule, averaging) with each rule that is synchronous, around `Inner`.
template <class Inner, class Visit>
void for_each_kind(std::int64_t every, Visit&& visit) {
    visit(Rule::local_sgd, cupola::Periodic<Inner>{.every = every});
    visit(Rule::diloco, cupola::Periodic<Inner, cupola::Sgd>{.every = every, .outer = outer_sgd()});
    visit(Rule::easgd, cupola::ElasticAveraging<Inner>{.every = every});
    visit(Rule::eamsgd, cupola::ElasticAveraging<Inner>{.every = every});
}

}  // namespace rules
