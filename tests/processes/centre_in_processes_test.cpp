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

#include <cupola/parallel/compressed.hpp>
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
constexpr auto streaming = []<class Inner>(const Inner& inner) {
    return Periodic<Inner>{.every = 4, .fragments = 2, .delay = 1, .averaging = inner};
};
constexpr auto late_diloco = []<class Inner>(const Inner& inner) {
    return Periodic<Inner, Sgd>{
        .every = 3, .delay = 2, .mix = 0.5, .averaging = inner, .outer = {.learning_rate = 0.5, .momentum = 0.5}};
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
    check(streaming);
    check(late_diloco);
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
    check(streaming);
    check(late_diloco);
}

namespace {

/// A training of one of two processes, whose sums are under way while it makes steps.
template <class Around>
auto streaming_training(const Around& around, Hub& hub, int number, int devices = 1) {
    const auto averaging = around(ThreadSum{.hub = &hub, .number = number, .bucket_bytes = 4096});
    using Training = processes::Training<std::remove_const_t<decltype(averaging)>, AnyStatistics>;
    return std::make_unique<Training>(
        processes::options_of(Case{.unequal = true, .devices = devices}, averaging, AnyStatistics{.which = 3}));
}

}  // namespace

TEST_CASE("a state is that of a sum which is complete, and continuing from it has the bits of not stopping") {
    const auto check = [](const auto& around, int devices) {
        // With a state before each step all sums complete early; without one, in the steps that use them.
        const auto run = [&](bool stops) {
            Hub hub(2, true);
            std::vector<std::vector<TrainingState>> states(2);
            CHECK(on_threads(2, [&](int number) {
                      auto training = streaming_training(around, hub, number, devices);
                      auto& mine = states[static_cast<std::size_t>(number)];
                      const Batches batches(unequal);
                      for (int step = 0; step < 12; ++step) {
                          training->step(batches);
                          if (stops || step == 11) mine.push_back(training->state());
                      }
                  }) == std::vector<std::string>(2));
            CHECK(states[0].back().parameters == states[1].back().parameters);
            return states[0];
        };
        const std::vector<TrainingState> states = run(true);
        const TrainingState end = run(false).back();
        const auto check_end = [&](const TrainingState& found) {
            CHECK(found.parameters == end.parameters);
            CHECK(found.averages == end.averages);
            CHECK(found.replicas == end.replicas);
            CHECK(found.samples_since == end.samples_since);
            CHECK(found.centre_optimizer == end.centre_optimizer);
        };
        check_end(states.back());
        for (const std::size_t at : {2U, 3U, 4U, 5U}) {
            Hub hub(2, true);
            CHECK(on_threads(2, [&](int number) {
                      auto training = streaming_training(around, hub, number, devices);
                      const Batches batches(unequal);
                      // A sum of its own is under way.
                      for (int step = 0; step < 4; ++step) training->step(batches);
                      training->restore(states[at]);
                      while (training->step() < 12) training->step(batches);
                      const TrainingState found = training->state();
                      if (number == 0) check_end(found);
                  }) == std::vector<std::string>(2));
        }
    };
    check(streaming, 1);
    check(late_diloco, 2);
}

TEST_CASE("the processes begin the sums of a fragment alone, and finish them when it moves the centre") {
    Hub hub(2, true);
    CHECK(on_threads(2, [&](int number) {
              const auto averaging = streaming(ThreadSum{.hub = &hub, .number = number});
              using Training = processes::Training<std::remove_const_t<decltype(averaging)>, AnyStatistics>;
              Training training(processes::options_of(unequal, averaging, AnyStatistics{.which = 3}));
              const Batches batches(unequal);
              std::vector<std::size_t> sums;
              for (int step = 0; step < 8; ++step) {
                  training.step(batches);
                  sums.push_back(hub.begun(number).size());
              }
              CHECK(sums == std::vector<std::size_t>{0, 1, 1, 2, 2, 3, 3, 4});
              const std::vector<std::size_t> sizes = hub.begun(number);
              const auto all = static_cast<std::size_t>(processes::Net::trained_elements);
              CHECK(sizes[0] == all - all / 2);
              CHECK(sizes[1] == all / 2);
          }) == std::vector<std::string>(2));
}

TEST_CASE("a policy that cannot average a part of the parameters refuses fragments") {
    Hub hub(1, true);
    const Periodic<Compressed<ThreadSum>> averaging{
        .every = 4, .fragments = 2, .averaging = {.policy = {.hub = &hub, .number = 0}}};
    using Training = processes::Training<Periodic<Compressed<ThreadSum>>, AnyStatistics>;
    CHECK_THROWS_WITH_AS(
        Training(processes::options_of(unequal, averaging, AnyStatistics{})),
        "Periodic with 2 fragments needs an averaging that can average a part of the parameters: ConcatMean, "
        "MpiConcatMean or MpiAllReduce",
        InvalidArgument);
}

TEST_CASE("a step that is not finite begins no sum of differences that its state has") {
    const Case c;
    Batches batches(c), with_nan(c);
    with_nan.set_input(5, std::numeric_limits<float>::quiet_NaN());
    Hub hub(1, true);
    const Periodic<ThreadSum> averaging{.every = 2, .delay = 1, .averaging = {.hub = &hub, .number = 0}};
    processes::Training<Periodic<ThreadSum>, AnyStatistics> training(
        processes::options_of(c, averaging, AnyStatistics{}));
    training.step(batches);
    // Step 1, in which the differences are taken, with the batches of step 0.
    CHECK_THROWS_AS(
        training.step([&](std::int64_t, int replica, HostContext& context) { return with_nan(0, replica, context); }),
        DivergedError);
    const TrainingState state = training.state();
    CHECK(state.step == 1);
    for (const auto& values : {state.parameters, state.averages})
        CHECK(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }));
    training.restore(state);
    for (int step = 0; step < 4; ++step) training.step(batches);
    CHECK(training.step() == 5);
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
