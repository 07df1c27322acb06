// SPDX-License-Identifier: Apache-2.0
//
// Collectives over several processes: the replicas are those of all processes, and each process knows the results of all.
#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/parallel/inspection.hpp>

#include "../throws_with.hpp"
#include "parallel/delayed_device.hpp"
#include "parallel/largest_difference.hpp"
#include "process_trainings.hpp"
#include "sum_of_processes.hpp"

using namespace processes;

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
        CAPTURES(c.devices, c.statistics);
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
            CHECK(training.parameters() == before);
            throw;
        }
    });
    // The process that has the batch has searched it, and told the other.
    CHECK(errors[0].find("sample 0 of its batch is not finite") != std::string::npos);
    CHECK(errors[1] == errors[0]);
    CHECK(origins == std::vector<int>{3, 3});
    CHECK(at == std::vector<std::int64_t>{0, 0});
}

TEST_CASE_TEMPLATE("a process of a collective may evaluate alone between steps, also where parameters are compared", D,
                   Host, Delayed) {
    const Case c;
    const Batches batches(c);
    Hub hub(2, false);
    std::vector<int> reports(2);
    const auto errors = on_threads(2, [&](int number) {
        TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
        for (int s = 0; s < 12; ++s) {
            training.queue(batches);
            // The first waits for all steps, the other for none.
            if (number == 0 && s % 3 == 1) static_cast<void>(training.parameters());
            while (training.poll_report() != nullptr) ++reports[static_cast<std::size_t>(number)];
        }
        while (training.poll_report(0) != nullptr) ++reports[static_cast<std::size_t>(number)];
    });
    CHECK(errors == std::vector<std::string>(2));
    CHECK(reports == std::vector<int>{12, 12});
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

TEST_CASE_TEMPLATE("processes of a collective skip a step together in which no sample counts, by the option", D, Host,
                   Delayed) {
    const Case c;
    const Batches batches(c);
    Batches without(c);
    without.set_weights(0);
    Hub hub(2, false);
    std::vector<std::vector<float>> parameters(2);
    const auto errors = on_threads(2, [&](int number) {
        auto options = options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number});
        options.skip_steps_without_labels = true;
        TrainingOn<D, SumOfProcesses> training(options);
        training.step(batches);
        const std::vector<float> before = training.parameters();
        CHECK(training.step(without).skipped);
        CHECK(training.parameters() == before);
        CHECK(!training.step(batches).skipped);
        parameters[static_cast<std::size_t>(number)] = training.parameters();
        CHECK(parameters[static_cast<std::size_t>(number)] != before);
    });
    CHECK(errors == std::vector<std::string>{"", ""});
    CHECK(parameters[0] == parameters[1]);
}

TEST_CASE_TEMPLATE("processes of a collective with different options are rejected before the first step", D, Host,
                   Delayed) {
    Hub hub(2, false);
    const auto errors = on_threads(2, [&](int number) {
        auto options = options_of<D>({}, SumOfProcesses{.hub = &hub, .number = number});
        options.optimizer.momentum = number == 0 ? 0.9 : 0.8;
        const TrainingOn<D, SumOfProcesses> training(options);
    });
    CHECK(errors[0].starts_with("process 1 has another optimizer's settings than process 0: "));
    CHECK(errors[1] == errors[0]);
}

TEST_CASE_TEMPLATE("a parameter that differs in one process of a collective is found at the next check, by all", D,
                   Host, Delayed) {
    const Case c;
    const Batches batches(c);
    for (const bool statistic : {false, true}) {
        CAPTURE(statistic);
        Hub hub(2, false);
        std::vector<std::int64_t> reported(2);
        const auto errors = on_threads(2, [&](int number) {
            TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
            TrainingState state = training.state();
            float& value = statistic ? state.buffers[3] : state.parameters[3];
            if (number == 1) value += 1;
            training.restore(state);
            // Checked after the steps 1, 3 and so on, and compared before the step that is queued when all have read that report.
            for (int s = 0; s < 8; ++s) {
                training.step(batches);
                ++reported[static_cast<std::size_t>(number)];
            }
        });
        CAPTURE(errors[0]);
        CHECK(reported == std::vector<std::int64_t>(2, 1 + D::max_steps_in_flight));
        CHECK(errors[0] == text("after step 1 the ", statistic ? "running statistics" : "parameters",
                                " of process 1 differ from those of process 0: a process computed a different result"));
        CHECK(errors[1] == errors[0]);
    }
}

TEST_CASE_TEMPLATE("a device of a process whose parameters differ is named by all processes of a collective", D, Host,
                   Delayed) {
    const Case c{.devices = 2};
    const Batches batches(c);
    Hub hub(2, false);
    const auto errors = on_threads(2, [&](int number) {
        TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
        const auto change = [&](const auto& inspection) {
            if (number == 1) const_cast<float&>(inspection.parameters()[7]) += 1.0F;
        };
        training.step(batches, change);
        try {
            for (int s = 0; s < 8; ++s) training.step(batches);
        } catch (const ReplicasDiffer&) {
            CHECK(!training.healthy());
            throw;
        }
    });
    CHECK(errors[0] ==
          "after step 1 the parameters of device 1 of process 1 differ from those of its device 0: a device "
          "computed a different result");
    CHECK(errors[1] == errors[0]);
}

namespace {

/// Ends the run, or fails, after a step, or before the first with -1; may have reports come before the next step.
struct Ends {
    std::int64_t after;
    bool fails = false, alone = false;
    std::vector<std::int64_t>* seen = nullptr;
    void on_begin(Run& run) const { run.stop = after < 0; }
    void on_step(const StepReport& report, Run& run) const {
        seen->push_back(report.step);
        if (report.step != after) return;
        if (fails) throw DataError("the disk is full");
        run.stop = true;
    }
    [[nodiscard]] bool synchronize_after(std::int64_t step) const { return alone && step % 2 == 0; }
};

struct EndOfRun {
    std::vector<std::string> errors;
    std::vector<std::vector<std::int64_t>> seen;
    std::vector<std::int64_t> next_steps;
};

/// A run of two processes; each has a callback of its own.
template <class D>
EndOfRun end_of_run(const std::vector<Ends>& callbacks) {
    const Case c;
    const Batches batches(c);
    Hub hub(2, false);
    EndOfRun found{.errors = {}, .seen = {{}, {}}, .next_steps = {-1, -1}};
    found.errors = on_threads(2, [&](int number) {
        const auto n = static_cast<std::size_t>(number);
        TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
        Ends callback = callbacks[n];
        callback.seen = &found.seen[n];
        try {
            fit(training, batches, {.steps = 30}, callback);
        } catch (...) {
            found.next_steps[n] = training.step();
            throw;
        }
        found.next_steps[n] = training.step();
        fit(training, batches, {.steps = 2});  // nothing is left of the first run
        CHECK(training.step() == found.next_steps[n] + 2);
    });
    return found;
}

}  // namespace

TEST_CASE_TEMPLATE("a run of a collective that a callback of one process ends, ends after the same step on all", D,
                   Host, Delayed) {
    // The wish travels with the next step that is queued, and ends the run when its report has been read. Where one process waits for
    // the report of a step, all wait, and agree at once: the parameters are compared where reports are read.
    constexpr std::int64_t in_flight = D::max_steps_in_flight;
    for (const bool alone : {false, true}) {
        CAPTURE(alone);
        for (const int which : {0, 1}) {
            CAPTURE(which);
            std::vector<Ends> callbacks(2, Ends{.after = 100});
            callbacks[static_cast<std::size_t>(which)] = {.after = 6, .alone = alone};
            const EndOfRun found = end_of_run<D>(callbacks);
            CAPTURES(found.errors[0], found.errors[1]);
            CHECK(found.errors == std::vector<std::string>(2));
            CHECK(found.next_steps[0] == found.next_steps[1]);
            if (alone) {
                CHECK(found.next_steps[0] == 7);
            } else {
                CHECK(found.next_steps[0] > 7);
                CHECK(found.next_steps[0] <= 7 + 2 * in_flight);
            }
            CHECK(found.seen[0].size() == static_cast<std::size_t>(found.next_steps[0]));
            CHECK(found.seen[0] == found.seen[1]);
        }
    }
}

TEST_CASE_TEMPLATE("a run of a collective that one process ends before its first step makes none", D, Host, Delayed) {
    const EndOfRun found = end_of_run<D>({Ends{.after = 100}, Ends{.after = -1}});
    CHECK(found.errors == std::vector<std::string>(2));
    CHECK(found.next_steps == std::vector<std::int64_t>{0, 0});
}

TEST_CASE_TEMPLATE("an error of one process's callback ends the run of a collective on all", D, Host, Delayed) {
    const EndOfRun found = end_of_run<D>({Ends{.after = 6, .fails = true}, Ends{.after = 100}});
    CHECK(found.errors == std::vector<std::string>{"the disk is full", "process 0: the disk is full"});
    CHECK(found.next_steps[0] == found.next_steps[1]);
}

TEST_CASE_TEMPLATE("an error in one process's step is thrown there, and the others do not wait for it", D, Host,
                   Delayed) {
    const Case c;
    const Batches batches(c);
    Hub hub(2, false);
    std::vector<int> ended(2);
    const auto errors = on_threads(2, [&](int number) {
        struct Counts {
            int* ended;
            void on_step(const StepReport&, Run&) const {}
            void on_end(Run&) const { ++*ended; }
        };
        TrainingOn<D, SumOfProcesses> training(options_of<D>(c, SumOfProcesses{.hub = &hub, .number = number}));
        const auto source = [&](std::int64_t place, int replica, HostContext& context) {
            if (place == 4 && number == 1) {
                hub.leave(number);
                throw DataError("the file is damaged");
            }
            return batches(place, replica, context);
        };
        fit(training, source, {.steps = 30}, Counts{&ended[static_cast<std::size_t>(number)]});
    });
    CHECK(errors[1] == "the file is damaged");
    CHECK(errors[0] == "process 1 has not sent the sums of step -1");
    CHECK(ended == std::vector<int>{1, 1});
}

namespace {

struct Line : Sequential<Input<1>, Linear<1, weights(constant(0.0)), no_bias>> {};

}  // namespace

TEST_CASE_TEMPLATE("a gradient that is not finite is named by all processes of a collective, and one goes on after it",
                   D, Host, Delayed) {
    using OnLine = DataParallel<Line, MeanSquaredError, Sgd, SumOfProcesses, D>;
    // The loss, 0.5e38 at most, is finite; the gradient, 1e39, is not.
    const float large[] = {1e20F}, larger[] = {1e19F}, one[] = {1};
    const auto batches = [&](std::int64_t place, int replica, HostContext&) -> BatchView {
        const bool bad = place == 4 && replica == 1;
        return {bad ? large : one, {1}, bad ? larger : one, {1}, 1};
    };
    Hub hub(2, false);
    std::vector<std::vector<std::string>> thrown(2);
    const auto errors = on_threads(2, [&](int number) {
        typename OnLine::Options options;
        options.replicas = 2;
        options.batch_size = 1;
        options.optimizer = {.learning_rate = 1e-6};  // the weight stays about 0
        options.averaging = {.hub = &hub, .number = number};
        OnLine training(options);
        for (const bool again : {false, true}) {
            try {
                fit(training, batches, {.steps = 8});
            } catch (const DivergedError& error) {
                CHECK(error.replica == 1);
                CHECK(training.step() == 4);
                thrown[static_cast<std::size_t>(number)].emplace_back(error.what());
            }
            if (again) break;
        }
    });
    CHECK(errors == std::vector<std::string>(2));
    REQUIRE(thrown[0].size() == 2);
    CHECK(thrown[0] == thrown[1]);
    CHECK(thrown[0][0] == thrown[0][1]);
    CAPTURE(thrown[0][0]);
    CHECK(thrown[0][0].find("the gradient of replica 1 is not finite") != std::string::npos);
    CHECK(thrown[0][0].find("every output is finite; the gradient of ") != std::string::npos);
}

TEST_CASE("processes of a collective that make different calls are told so") {
    const Case c;
    Hub hub(2, false);
    const auto errors = on_threads(2, [&](int number) {
        TrainingOn<Host, SumOfProcesses> training(options_of<Host>(c, SumOfProcesses{.hub = &hub, .number = number}));
        static_cast<void>(training.run_policy().largest({number == 0 ? "the checkpoint" : "the record", 3}, 0));
    });
    CHECK(errors[0].starts_with("process 1 exchanges the record of "));
    CHECK(errors[0].find(" of step 3, and process 0 the checkpoint of ") != std::string::npos);
    CHECK(errors[1].starts_with("process 0 exchanges the checkpoint of "));
}
