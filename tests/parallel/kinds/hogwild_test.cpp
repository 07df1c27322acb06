// SPDX-License-Identifier: Apache-2.0
//
// Replicas that update one set of parameters at the same time.
#include <cupola/parallel/kinds/hogwild.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/host.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../../test.hpp"
#include "kind_training.hpp"

using namespace cupola;

namespace {

using Training = rules::KindTraining<Hogwild, Host>;

constexpr int steps = 60;

/// The same batches in each step, without targets: the minimum is at 0.
struct Source {
    [[nodiscard]] BatchView operator()(std::int64_t step, int number, HostContext&) const {
        return (has_targets ? of_steps[static_cast<std::size_t>(step)] : of_steps[0]).of(number);
    }
    bool has_targets = true;
    std::vector<rules::Batches> of_steps = std::vector<rules::Batches>(steps, rules::Batches(3));
};

Training::Options options(int devices, double rate) {
    return {.replicas = 3,
            .devices = devices,
            .batch_size = 3,
            .optimizer = {.learning_rate = rate, .momentum = 0},
            .averaging = {.ahead = 5},
            .moving_average = {.decay = 0.75}};
}

}  // namespace

TEST_CASE("on one device it is the optimiser's step of one batch after another") {
    Training training(options(1, 0.125));
    rules::start(training);
    Source source;
    for (int step = 0; step < steps; ++step) source.of_steps[static_cast<std::size_t>(step)].set(step);
    const rules::Quadratic quadratic;
    rules::Point expected = quadratic.start;
    for (int step = 0; step < steps; ++step) {
        training.queue(source);
        for (int k = 0; k < 3; ++k) {
            for (std::size_t j = 0; j < rules::coordinates; ++j)
                expected[j] -= 0.125 * quadratic.gradient(expected[j], k, step, j);
        }
    }
    const std::vector<float> centre = training.parameters();
    for (std::size_t j = 0; j < rules::coordinates; ++j)
        CHECK(static_cast<double>(centre[j]) == doctest::Approx(expected[j]).epsilon(1e-5));
    // Other replicas have computed nothing between a copy and its exchange, but two between two of one replica.
    const StepReport* const report = training.poll_report(0);
    REQUIRE(report != nullptr);
    for (const ReplicaReport& each : report->replicas) CHECK(each.staleness == 2);
}

TEST_CASE("on several devices all replicas go to the minimum, each element by atomic operations") {
    Training training(options(3, 0.05));
    rules::start(training);
    Source source{.has_targets = false};
    source.of_steps[0].set(0);
    std::int64_t last = -1;
    for (int step = 0; step < steps; ++step) {
        training.queue(source);
        while (const StepReport* const report = training.poll_report()) {
            CHECK(report->step == ++last);
            CHECK(report->samples == 9);
        }
    }
    const TrainingState state = training.state();
    // The mean of the targets of the batches is the minimum of all.
    for (std::size_t j = 1; j < rules::coordinates; ++j) {
        double minimum = 0;
        for (int k = 0; k < 3; ++k) minimum += rules::Quadratic().target(k, 0, j) / 3;
        CHECK(static_cast<double>(state.parameters[j]) == doctest::Approx(minimum).epsilon(0.1).scale(1));
        CHECK(static_cast<double>(state.averages[j]) == doctest::Approx(minimum).epsilon(0.15).scale(1));
    }
    // What a replica copies for a batch is not a part of its state.
    CHECK(state.replicas[0].optimizer.empty());
    for (int device = 0; device < 3; ++device) CHECK(training.parameters(device) == state.parameters);
}

TEST_CASE("a state is restored") {
    Training training(options(1, 0.125)), resumed(options(1, 0.125));
    rules::start(training);
    Source source;
    for (int step = 0; step < steps; ++step) source.of_steps[static_cast<std::size_t>(step)].set(step);
    for (int step = 0; step < 7; ++step) training.queue(source);
    resumed.restore(training.state());
    for (int step = 7; step < 12; ++step) {
        training.queue(source);
        resumed.queue(source);
    }
    CHECK(training.state().parameters == resumed.state().parameters);
    CHECK(training.state().averages == resumed.state().averages);
}

TEST_CASE("Hogwild describes itself, and has at least one step in flight") {
    CHECK(Hogwild{}.description() == "Hogwild, without an order, at most 4 steps ahead");
    Training::Options none = options(1, 0.125);
    none.averaging.ahead = 0;
    CHECK_THROWS_WITH_AS(Training{none}, "Hogwild must have 1 to 4096 steps in flight, not 0", InvalidArgument);
}
