// SPDX-License-Identifier: Apache-2.0
//
// Collectives over several processes: the replicas are those of all processes, and each process knows the results of all.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include "../throws_with.hpp"
#include "delayed_device.hpp"
#include "largest_difference.hpp"
#include "process_trainings.hpp"
#include "sum_of_processes.hpp"

using namespace cupola;
using processes::AnyStatistics;
using processes::append;
using processes::Batches;
using processes::Case;

namespace {

constexpr int steps = 5;

template <class D, class Averaging>
using TrainingOn = DataParallel<processes::Net, processes::Loss, Sgd, Averaging, D, AnyStatistics>;

template <class D, class Averaging>
typename TrainingOn<D, Averaging>::Options options_of(const Case& c, const Averaging& averaging) {
    typename TrainingOn<D, Averaging>::Options options;
    options.replicas = processes::replicas;
    options.devices = c.devices;
    options.batch_size = processes::batch;
    options.other_batch_sizes = {2, 4};
    options.gradient_accumulation_steps = c.accumulation;
    options.seed = 3;
    options.optimizer = {.learning_rate = 0.02, .momentum = 0.9};
    options.averaging = averaging;
    options.statistics = {c.statistics};
    options.moving_average = {.decay = 0.9};
    options.check_every = 2;
    return options;
}

struct Outcome {
    std::vector<std::byte> first_report, reports;
    std::vector<double> losses;
    std::vector<float> parameters, buffers;
    std::string error;
};

/// What each of `count` processes has of the same training.
template <class D>
std::vector<Outcome> outcomes(const Case& c, int count, const Batches& batches) {
    Hub hub(count, false);
    std::vector<Outcome> all(static_cast<std::size_t>(count));
    const auto errors = on_threads(count, [&](int number) {
        TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
        Outcome& outcome = all[static_cast<std::size_t>(number)];
        CHECK(training.process().count == count);
        CHECK(training.process().number == number);
        for (int s = 0; s < steps; ++s) training.queue(batches);
        while (const StepReport* report = training.poll_report(0)) {
            append(outcome.reports, *report);
            outcome.losses.push_back(report->loss);
        }
        const StepReport& last = training.step(batches);
        append(outcome.reports, last);
        CHECK(last.replicas.size() == processes::replicas);
        const TrainingState state = training.state();
        outcome.parameters = state.parameters;
        outcome.buffers = state.buffers;
    });
    for (std::size_t p = 0; p < all.size(); ++p) all[p].error = errors[p];
    return all;
}

/// The report of the first step, before the order of additions has changed any parameter.
template <class D>
std::vector<std::byte> first_report(const Case& c, int count, const Batches& batches) {
    Hub hub(count, false);
    std::vector<std::vector<std::byte>> reports(static_cast<std::size_t>(count));
    const auto errors = on_threads(count, [&](int number) {
        TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
        append(reports[static_cast<std::size_t>(number)], training.step(batches));
    });
    for (std::size_t p = 0; p < reports.size(); ++p) {
        CHECK(errors[p] == "");
        CHECK(reports[p] == reports[0]);
    }
    return reports[0];
}

}  // namespace

TEST_CASE_TEMPLATE(
    "processes of a collective report all replicas, with one process's losses, statistics and parameters", D, Host,
    Delayed) {
    for (const Case& c : {Case{.unequal = true, .accumulation = 2, .devices = 1, .statistics = 2},
                          Case{.unequal = true, .devices = 2, .statistics = 1}, Case{.statistics = 3}}) {
        CAPTURE(c.devices);
        CAPTURE(c.statistics);
        const Batches batches(c);
        const std::vector<std::byte> first = first_report<D>(c, 1, batches);
        const Outcome alone = outcomes<D>(c, 1, batches)[0];
        CHECK(alone.error == "");
        for (const int count : {2, 4}) {
            if (c.devices > 4 / count) continue;
            CAPTURE(count);
            CHECK(first_report<D>(c, count, batches) == first);
            const std::vector<Outcome> all = outcomes<D>(c, count, batches);
            for (std::size_t p = 0; p < all.size(); ++p) {
                CAPTURE(p);
                CHECK(all[p].error == "");
                CHECK(all[p].reports == all[0].reports);
                CHECK(all[p].parameters == all[0].parameters);
                CHECK(all[p].buffers == all[0].buffers);
                CHECK(largest_difference(all[p].parameters, alone.parameters) < 1e-5);
                CHECK(largest_difference(all[p].buffers, alone.buffers) < 1e-5);
            }
        }
    }
}

TEST_CASE_TEMPLATE("every process names the replica whose loss is not finite, wherever it is", D, Host, Delayed) {
    const Case c;
    Batches batches(c);
    batches.set_input(33 * 8 * 8 * 3, std::numeric_limits<float>::infinity());  // of replica 3 in step 0
    Hub hub(2, false);
    std::vector<int> origins(2, -1);
    std::vector<std::int64_t> at(2, -1);
    const auto errors = on_threads(2, [&](int number) {
        TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
        const std::vector<float> before = training.parameters();
        try {
            training.step(batches);
        } catch (const DivergedError& error) {
            origins[static_cast<std::size_t>(number)] = error.replica;
            at[static_cast<std::size_t>(number)] = error.step;
        }
        CHECK(training.parameters() == before);
    });
    CHECK(errors == std::vector<std::string>{"", ""});
    CHECK(origins == std::vector<int>{3, 3});
    CHECK(at == std::vector<std::int64_t>{0, 0});
}

TEST_CASE("processes of a collective that do not divide the replicas are rejected, as with an engine") {
    Hub hub(3, false);
    const Case c;
    CHECK(message_of<InvalidArgument>([&] {
              TrainingOn<Host, SumOfProcesses> training(options_of<Host>(c, SumOfProcesses{.hub = &hub}));
          }) == "a training of 4 replicas cannot be divided evenly between 3 processes");
}

TEST_CASE("the samples of all processes must have a weight, not those of each") {
    const Case c;
    const Batches batches(c);
    // Replicas 0 and 1 have no samples: they are all in the other process.
    const auto of_others = [&](std::int64_t place, int replica, HostContext& context) {
        return replica < 2 ? BatchView{} : batches(place, replica, context);
    };
    Hub hub(2, false);
    const auto errors = on_threads(2, [&](int number) {
        TrainingOn<Host, SumOfProcesses> training(options_of<Host>(c, SumOfProcesses{.hub = &hub, .number = number}));
        const StepReport& report = training.step(of_others);
        CHECK(report.samples == 12);
        CHECK(report.weight > 0);
        CHECK(report.replicas[0].samples == 0);
        CHECK(report.replicas[3].samples == 6);
    });
    CHECK(errors == std::vector<std::string>{"", ""});
}
