// SPDX-License-Identifier: Apache-2.0
//
// A training whose replicas are divided between processes has the bits of one process, whatever their number; here the
// processes are threads that exchange through a hub.
//
// Covers: cupola/core/process_number.hpp, cupola/processes/processes.hpp
// Covers: cupola/processes/agreement/step_records.hpp, cupola/processes/agreement/step_vote.hpp
// Covers: cupola/processes/agreement/process_rows_agreement.hpp
#include <cupola/layers/embedding.hpp>
#include <cupola/losses.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/synchronized.hpp>
#include <cupola/processes/processes.hpp>

#include "../test.hpp"

#include "process_trainings.hpp"
#include "thread_processes.hpp"
#include "throws_with.hpp"

namespace {

using processes::AnyStatistics, processes::Batches, processes::Case;
constexpr int steps = 5;

template <class Statistics>
std::vector<std::byte> trace_of_one(const Case& c, const Statistics& statistics) {
    processes::Training<ConcatMean, Statistics> training(processes::options_of(c, ConcatMean{}, statistics));
    return trace_of(training, Batches(c), steps);
}

template <class Statistics>
void check_equal(const Case& c, const Statistics& statistics) {
    Case alone = c;
    alone.devices = 1;
    const std::vector<std::byte> expected = trace_of_one(alone, statistics);
    for (const int count : {1, 2, 3, 4}) {
        if (c.devices > 4 / count) continue;
        for (const bool shares : {true, false}) {
            CAPTURES(count, shares);
            Hub hub(count, shares, count == 3);
            std::vector<std::vector<std::byte>> traces(static_cast<std::size_t>(count));
            const auto errors = on_threads(count, [&](int number) {
                const ThreadConcatMean averaging{.hub = &hub, .number = number};
                processes::Training<ThreadConcatMean, Statistics> training(
                    processes::options_of(c, averaging, statistics));
                traces[static_cast<std::size_t>(number)] = trace_of(training, Batches(c), steps);
            });
            for (int p = 0; p < count; ++p) {
                CAPTURE(p);
                CHECK(errors[static_cast<std::size_t>(p)] == "");
                CHECK(traces[static_cast<std::size_t>(p)] == expected);
            }
        }
    }
}

}  // namespace

TEST_CASE("1, 2 and 4 processes, and 3 that are left, have the bits of one, with each policy for statistics") {
    for (int which = 0; which < 4; ++which) {
        CAPTURE(which);
        check_equal({.unequal = which % 2 == 1, .accumulation = 1 + which / 2}, AnyStatistics{which});
    }
    check_equal({.unequal = true}, Synchronized{});
    check_equal({.accumulation = 2}, Synchronized{});
    check_equal({.unequal = true, .devices = 2}, AnyStatistics{3});
    check_equal({.devices = 2}, Synchronized{});
}

namespace {

/// What each of two processes throws, and the number of the next step after it; `run(training, number)` may throw.
struct Outcome {
    std::vector<std::string> errors;
    std::vector<std::int64_t> next_steps;
    bool parameters_are_equal = false;
};
template <class Run>
Outcome outcome_of_two(const Case& c, Run&& run, bool shares = true) {
    Hub hub(2, shares);
    Outcome outcome;
    outcome.next_steps.resize(2);
    std::vector<std::vector<float>> parameters(2);
    outcome.errors = on_threads(2, [&](int number) {
        processes::Training<ThreadConcatMean, AnyStatistics> training(
            processes::options_of(c, ThreadConcatMean{.hub = &hub, .number = number}, AnyStatistics{}));
        const auto at = static_cast<std::size_t>(number);
        try {
            run(training, number);
        } catch (const Error&) {
            outcome.next_steps[at] = training.step();
            parameters[at] = training.parameters();
            throw;
        }
        outcome.next_steps[at] = training.step();
        parameters[at] = training.parameters();
    });
    outcome.parameters_are_equal = parameters[0] == parameters[1] && !parameters[0].empty();
    return outcome;
}

}  // namespace

TEST_CASE("a process that fails in a step ends the step of all, and each goes on from the same state") {
    const Case c;
    const Batches batches(c);
    for (const bool shares : {true, false}) {
        const Outcome outcome = outcome_of_two(
            c,
            [&](auto& training, int number) {
                training.step(batches);
                try {
                    training.step([&](std::int64_t place, int replica, HostContext& context) {
                        if (replica == 3) throw DataError("file 7 is damaged");
                        return batches(place, replica, context);
                    });
                } catch (const DataError& error) {
                    CHECK(number == 1);
                    CHECK(error.what() == std::string("file 7 is damaged"));
                } catch (const DeviceError& error) {
                    CHECK(number == 0);
                    CHECK(error.what() == std::string("process 1 failed in step 1: file 7 is damaged"));
                }
                CHECK(training.step() == 1);
                training.step(batches);
            },
            shares);
        CHECK(outcome.errors == std::vector<std::string>(2));
        CHECK(outcome.next_steps == std::vector<std::int64_t>{2, 2});
        CHECK(outcome.parameters_are_equal);
    }
}

TEST_CASE("a loss or a gradient that is not finite is reported by all processes with the same origin") {
    const Case c;
    Batches with_nan(c);
    // An input of the first batch of replica 2, which process 1 has.
    with_nan.set_input(22 * 8 * 8 * 3 + 5, std::numeric_limits<float>::quiet_NaN());
    const auto alone = [&] {
        processes::Training<ConcatMean, AnyStatistics> training(
            processes::options_of(c, ConcatMean{}, AnyStatistics{}));
        try {
            training.step(with_nan);
        } catch (const DivergedError& error) {
            CHECK(error.replica == 2);
            return std::string(error.what());
        }
        return std::string();
    }();
    CHECK(alone.find("sample 0 of its batch is not finite") != std::string::npos);
    for (const bool shares : {true, false}) {
        const Outcome outcome = outcome_of_two(
            c, [&](auto& training, int) { training.step(with_nan); }, shares);
        CHECK(outcome.errors == std::vector<std::string>{alone, alone});
        CHECK(outcome.next_steps == std::vector<std::int64_t>{0, 0});
        CHECK(outcome.parameters_are_equal);
    }
}

TEST_CASE("the sample at which a loss is not finite is found by three processes that are left of four") {
    const Case c;
    Batches with_nan(c);
    with_nan.set_input(22 * 8 * 8 * 3 + 5, std::numeric_limits<float>::quiet_NaN());
    Hub hub(3, true, true);
    std::vector<int> replicas(3, -1);
    const auto errors = on_threads(3, [&](int number) {
        processes::Training<ThreadConcatMean, AnyStatistics> training(
            processes::options_of(c, ThreadConcatMean{.hub = &hub, .number = number}, AnyStatistics{}));
        try {
            training.step(with_nan);
        } catch (const DivergedError& error) {
            replicas[static_cast<std::size_t>(number)] = error.replica;
            throw;
        }
    });
    CHECK(replicas == std::vector<int>(3, 2));  // in the last process, which has two
    CHECK(errors[0].find("sample 0 of its batch is not finite") != std::string::npos);
    CHECK(errors == std::vector<std::string>(3, errors[0]));
}

namespace {

struct Words : Sequential<Input<1, 2>, Embedding<5, 4>, Flatten, Linear<2>> {};

}  // namespace

TEST_CASE("an id that is out of range is reported by all processes, with its replica among those of all") {
    const std::vector<std::int32_t> words{0, 1, 2, 3, 4, 0, 1, 5}, labels{0, 1, 0, 1};
    const auto batches = [&](std::int64_t step, int replica, HostContext&) -> BatchView {
        const std::int64_t of = step == 0 ? 0 : replica;
        return {1,
                {{{"input", ElementType::int32, {1, 2}}, words.data() + 2 * of},
                 {{"target", ElementType::int32, {1}}, labels.data() + of}}};
    };
    for (const int count : {2, 4}) {
        Hub hub(count, true);
        const auto errors = on_threads(count, [&](int number) {
            DataParallel<Words, CrossEntropy<2>, Sgd, ThreadConcatMean, Host> training(
                {.replicas = 4, .batch_size = 1, .averaging = {.hub = &hub, .number = number}});
            training.step(batches);
            try {
                training.step(batches);
            } catch (const InvalidArgument&) {
                CHECK(training.step() == 1);
                throw;
            }
        });
        for (const std::string& error : errors) {
            CHECK(error == errors[0]);
            CHECK(error.find("in the batch of replica 3 in step 1 ") != std::string::npos);
        }
    }
}

namespace {

/// What `count` processes throw in the step after process `changed` has flipped a bit of its memory: `change(state)` of its
/// state, or, with several devices, of the parameters of its first device alone.
template <class Change>
std::vector<std::string> errors_after(int count, int changed, int devices, Change&& change) {
    const Case c{.devices = devices};
    const Batches batches(c);
    Hub hub(count, true);
    return on_threads(count, [&](int number) {
        auto options = processes::options_of(c, ThreadConcatMean{.hub = &hub, .number = number}, AnyStatistics{2});
        options.check_every = 0;
        processes::Training<ThreadConcatMean, AnyStatistics> training(options);
        training.step(batches);
        if (number == changed && devices == 1) {
            TrainingState state = training.state();
            change(state);
            training.restore(state);
        } else if (number == changed) {
            training.step(batches,
                          [&](const auto& inspection) { const_cast<float&>(inspection.parameters()[7]) += 1.0F; });
        }
        if (devices > 1 && number != changed) training.step(batches);
        const std::vector<float> before = training.parameters();
        try {
            training.step(batches);
        } catch (const ReplicasDiffer& error) {
            CHECK(error.step == devices);
            CHECK(training.step() == devices);
            CHECK(!training.healthy());
            CHECK(training.parameters() == before);
            throw;
        }
    });
}

}  // namespace

TEST_CASE("a bit that is flipped in the memory of one process is found in the next step, before the update") {
    const std::string why = ": a process computed a different result, or its memory has changed";
    const auto all = [&](int count, const std::string& message) {
        return std::vector<std::string>(static_cast<std::size_t>(count), message + why);
    };
    const auto parameter = [](TrainingState& state) {
        state.parameters[3] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(state.parameters[3]) ^ 1U);
    };
    const auto statistic = [](TrainingState& state) {
        state.buffers[3] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(state.buffers[3]) ^ 1U);
    };
    CHECK(errors_after(4, 2, 1, parameter) ==
          all(4, "in step 1 the parameters of process 2 differ from those of the other 3"));
    CHECK(errors_after(4, 0, 1, statistic) ==
          all(4, "in step 1 the running statistics of process 0 differ from those of the other 3"));
    // Neither of two is the majority.
    const std::vector<std::string> of_two = errors_after(2, 1, 1, parameter);
    CHECK(of_two[0] == of_two[1]);
    CHECK(of_two[0].starts_with("in step 1 the parameters of processes 0 (hash "));
    CHECK(of_two[0].find("), 1 (hash ") != std::string::npos);
    CHECK(of_two[0].ends_with(") differ" + why));
    // One device's copy inside a process.
    const std::string of_device =
        "in step 2 the parameters of device 1 of process 1 differ from those of its device 0: a device computed a "
        "different result, or its memory has changed";
    CHECK(errors_after(2, 1, 2, parameter) == std::vector<std::string>{of_device, of_device});
}

TEST_CASE("processes with different settings, or a number of them that does not divide the replicas, are rejected") {
    const auto errors_of = [](int count, auto&& change) {
        Hub hub(count, true);
        return on_threads(count, [&](int number) {
            auto options = processes::options_of({}, ThreadConcatMean{.hub = &hub, .number = number}, AnyStatistics{});
            change(options, number);
            const processes::Training<ThreadConcatMean, AnyStatistics> training(options);
        });
    };
    const auto all = [](int count, const std::string& message) {
        return std::vector<std::string>(static_cast<std::size_t>(count), message);
    };
    CHECK(errors_of(3, [](auto&, int) {}) ==
          all(3, "a training of 4 replicas cannot be divided evenly between 3 processes"));
    CHECK(errors_of(2, [](auto& o, int number) { o.batch_size = number == 1 ? 8 : 6; }) ==
          all(2, "process 1 has another batch_size than process 0: 8, not 6"));
    CHECK(errors_of(2, [](auto& o, int number) { o.device.threads = 1 + number; }) ==
          all(2, "process 1 has another threads_per_device than process 0: 2, not 1"));
    CHECK(errors_of(2, [](auto& o, int number) { o.seed = number == 0 ? 3 : 5; }) ==
          all(2, "process 1 has another seed than process 0: 5, not 3"));
    CHECK(errors_of(4, [](auto& o, int) { o.devices = 2; }) ==
          all(4, "a process with 1 of the 4 replicas must have at most as many devices, not 2"));
}

namespace {

struct Two : Sequential<Input<2>, Linear<2>> {};

}  // namespace

TEST_CASE("processes whose losses have different options are rejected") {
    const auto errors_of = [](auto&& of_process) {
        using Loss = decltype(of_process(0));
        Hub hub(2, true);
        return on_threads(2, [&](int number) {
            const DataParallel<Two, Loss, Sgd, ThreadConcatMean, Host> training(
                {.replicas = 2,
                 .batch_size = 1,
                 .loss = {of_process(number)},
                 .averaging = {.hub = &hub, .number = number}});
        });
    };
    const auto both = [](const std::string& message) { return std::vector<std::string>(2, message); };
    CHECK(errors_of([](int p) { return CrossEntropy<2>{.label_smoothing = p == 0 ? 0.1F : 0.2F}; }) ==
          both("process 1 has another loss's settings than process 0: "
               "cross_entropy: CrossEntropy<2>, label_smoothing 0.2, not "
               "cross_entropy: CrossEntropy<2>, label_smoothing 0.1"));
    CHECK(errors_of([](int p) {
              return WeightedCrossEntropy<2>{.class_weights = {1, p == 0 ? 0.5F : 0.25F}, .ignored_label = 1};
          }) == both("process 1 has another loss's settings than process 0: "
                     "weighted_cross_entropy: WeightedCrossEntropy<2>, label_smoothing 0, "
                     "class_weights 1 0.25, ignored_label 1, not "
                     "weighted_cross_entropy: WeightedCrossEntropy<2>, label_smoothing 0, class_weights "
                     "1 0.5, ignored_label 1"));
    CHECK(errors_of([](int p) {
              return SoftCrossEntropy<2>{.class_weights = {1, p == 0 ? 1.0F : 3.0F}};
          }) == both("process 1 has another loss's settings than process 0: "
                     "soft_cross_entropy: SoftCrossEntropy<2>, label_smoothing 0, class_weights "
                     "1 3, not soft_cross_entropy: SoftCrossEntropy<2>, label_smoothing 0, class_weights 1 1"));
    CHECK(errors_of([](int p) { return BinaryCrossEntropy{.positive_weight = p == 0 ? 1.0F : 2.0F}; }) ==
          both("process 1 has another loss's settings than process 0: "
               "binary_cross_entropy: BinaryCrossEntropy, positive_weight 2, not "
               "binary_cross_entropy: BinaryCrossEntropy, positive_weight 1"));
    CHECK(errors_of([](int p) {
              return WeightedBinaryCrossEntropy<2>{.positive_weights = {1, p == 0 ? 1.0F : 2.0F}};
          }) == both("process 1 has another loss's settings than process 0: "
                     "weighted_binary_cross_entropy: WeightedBinaryCrossEntropy<2>, positive_weights 1 2, "
                     "not weighted_binary_cross_entropy: WeightedBinaryCrossEntropy<2>, positive_weights 1 1"));
}

TEST_CASE("processes that make different steps are told so") {
    const Case c;
    const Batches batches(c);
    const Outcome outcome = outcome_of_two(c, [&](auto& training, int number) {
        TrainingState state = training.state();
        state.step = 10 * number;
        training.restore(state);
        training.step(batches);
    });
    CHECK(outcome.errors == std::vector<std::string>{"process 1 makes step 10 where process 0 makes step 0",
                                                     "process 0 makes step 0 where process 1 makes step 10"});
}

TEST_CASE("the gradient of a replica of another process is not here") {
    const Case c;
    const Batches batches(c);
    const Outcome outcome = outcome_of_two(c, [&](auto& training, int number) {
        training.step(batches);
        CHECK(training.process().count == 2);
        CHECK(training.processes()->number() == number);
        CHECK(training.gradient(2 * number).size() == processes::Net::trained_elements);
        CHECK(training.averaged_gradient().size() == processes::Net::trained_elements);
        static_cast<void>(training.gradient(0));
    });
    CHECK(outcome.errors == std::vector<std::string>{"", "the gradient of replica 0 is in another process"});
}

namespace {

/// A callback that stops the run, or fails, after a step.
struct EndsAfter {
    std::int64_t step;
    bool fails = false;
    void on_step(const StepReport& report, Run& run) const {
        if (report.step != step) return;
        if (fails) throw DataError("the disk is full");
        run.stop = true;
    }
};

}  // namespace

TEST_CASE("a run that a callback of one process ends, or that fails there, ends after the same step on all") {
    const Case c;
    Batches batches(c);
    const Outcome stopped = outcome_of_two(c, [&](auto& training, int number) {
        fit(training, batches, {.steps = 10}, EndsAfter{number == 1 ? 3 : 100});
    });
    CHECK(stopped.errors == std::vector<std::string>(2));
    CHECK(stopped.next_steps == std::vector<std::int64_t>{4, 4});
    CHECK(stopped.parameters_are_equal);
    const Outcome failed = outcome_of_two(c, [&](auto& training, int number) {
        fit(training, batches, {.steps = 10}, EndsAfter{number == 0 ? 2 : 100, true});
    });
    CHECK(failed.errors == std::vector<std::string>{"the disk is full", "process 0: the disk is full"});
    CHECK(failed.next_steps == std::vector<std::int64_t>{3, 3});
}

TEST_CASE("processes of which none has samples that count skip the step together, by the option") {
    const Case c;
    const Batches batches(c);
    Batches without(c);
    without.set_weights(0);
    const auto second_without = [&](std::int64_t place, int replica, HostContext& context) {
        return place == 1 ? without(place, replica, context) : batches(place, replica, context);
    };
    const auto check = [&]<class Averaging>(int count, const Averaging& averaging) {
        Hub hub(count, false);
        std::vector<std::vector<std::byte>> traces(static_cast<std::size_t>(count));
        const auto errors = on_threads(count, [&](int number) {
            Averaging mine = averaging;
            mine.hub = &hub;
            mine.number = number;
            auto options = processes::options_of(c, mine, AnyStatistics{});
            CHECK(message_of<InvalidArgument>([&] {
                      processes::Training<Averaging, AnyStatistics> refuses(options);
                      trace_of(refuses, second_without, 2);
                  }) ==
                  "no sample of step 1 counts, of 6 on replica 0, 6 on replica 1, 6 on replica 2, 6 on replica 3: all "
                  "their weights are 0; the option skip_steps_without_labels lets such a step pass without an update");
            options.skip_steps_without_labels = true;
            processes::Training<Averaging, AnyStatistics> training(options);
            traces[static_cast<std::size_t>(number)] = trace_of(training, second_without, 3);
            CHECK(training.state().loss_scale->skipped_steps == 1);
        });
        for (std::size_t p = 0; p < errors.size(); ++p) {
            CHECK(errors[p] == "");
            CHECK(traces[p] == traces[0]);
        }
        return traces[0];
    };
    CHECK(check(2, ThreadConcatMean{}) == check(1, ThreadConcatMean{}));
    check(2, ThreadSum{});
}
