// SPDX-License-Identifier: Apache-2.0
//
// Replicas that agree on a centre and are divided between processes: the bits of one process, or those of a sum up to
// rounding. Here the processes are threads that exchange through a hub.
#include <cupola/parallel/kinds/centre_agreement.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/periodic.hpp>

#include "../test.hpp"

#include "process_trainings.hpp"
#include "thread_processes.hpp"

using namespace cupola;

namespace {

using processes::AnyStatistics, processes::Batches, processes::Case;
const Case unequal{.unequal = true};

template <class Averaging>
TrainingState state_after(const Averaging& averaging, int steps) {
    processes::Training<Averaging, AnyStatistics> training(
        processes::options_of(unequal, averaging, AnyStatistics{.which = 3}));
    const Batches batches(unequal);
    for (int step = 0; step < steps; ++step) training.step(batches);
    return training.state();
}

/// The states of two processes; `around(policy)` is a rule around the policy of one of them.
template <class Policy, class Around>
std::vector<TrainingState> states_of_two(Around&& around, int steps, bool shares = true) {
    Hub hub(2, shares);
    std::vector<TrainingState> states(2);
    const auto errors = on_threads(2, [&](int number) {
        states[static_cast<std::size_t>(number)] = state_after(around(Policy{.hub = &hub, .number = number}), steps);
    });
    CHECK(errors == std::vector<std::string>(2));
    return states;
}

constexpr auto local_sgd = []<class Inner>(const Inner& inner) {
    return Periodic<Inner>{.every = 2, .averaging = inner};
};
constexpr auto elastic = []<class Inner>(const Inner& inner) {
    return ElasticAveraging<Inner>{.every = 2, .averaging = inner};
};

}  // namespace

TEST_CASE("replicas of two processes agree on the centre of one, by its bits") {
    const auto check = [](const auto& around) {
        for (const int steps : {4, 5}) {
            const TrainingState expected = state_after(around(ConcatMean{}), steps);
            for (const bool shares : {true, false}) {
                for (const TrainingState& state : states_of_two<ThreadConcatMean>(around, steps, shares)) {
                    CHECK(state.parameters == expected.parameters);
                    CHECK(state.averages == expected.averages);
                    CHECK(state.replicas == expected.replicas);
                    CHECK(state.samples_since == expected.samples_since);
                }
            }
        }
    };
    check(local_sgd);
    check(elastic);
}

TEST_CASE("the sum of two processes' differences moves the centre as their mean, up to rounding") {
    const auto check = [](const auto& around) {
        const TrainingState expected = state_after(around(ConcatMean{}), 5);
        for (const TrainingState& state : states_of_two<ThreadSum>(around, 5)) {
            REQUIRE(state.parameters.size() == expected.parameters.size());
            float error = 0;
            for (std::size_t i = 0; i < state.parameters.size(); ++i)
                error = std::max(error, std::abs(state.parameters[i] - expected.parameters[i]));
            CHECK(error < 1e-5F);
        }
    };
    check(local_sgd);
    check(elastic);
}

TEST_CASE("a gradient of one process that is not finite ends a step without an agreement on both") {
    const Case c;
    Batches with_nan(c);
    // An input of the first batch of replica 2, which process 1 has.
    with_nan.set_input(22 * 8 * 8 * 3 + 5, std::numeric_limits<float>::quiet_NaN());
    Hub hub(2, true);
    std::vector<TrainingState> starts(2), ends(2);
    const auto errors = on_threads(2, [&](int number) {
        const Periodic<ThreadConcatMean> averaging{.every = 2, .averaging = {.hub = &hub, .number = number}};
        processes::Training<Periodic<ThreadConcatMean>, AnyStatistics> training(
            processes::options_of(c, averaging, AnyStatistics{}));
        const auto at = static_cast<std::size_t>(number);
        starts[at] = training.state();
        try {
            training.step(with_nan);
        } catch (const DivergedError& error) {
            CHECK(error.replica == 2);
            ends[at] = training.state();
            throw;
        }
    });
    CHECK(errors[0].find("sample 0 of its batch is not finite") != std::string::npos);
    CHECK(errors[1] == errors[0]);
    for (std::size_t at = 0; at < 2; ++at) {
        CHECK(ends[at].step == 0);
        CHECK(ends[at].parameters == starts[at].parameters);
        CHECK(ends[at].replicas == starts[at].replicas);
    }
}
