// SPDX-License-Identifier: Apache-2.0
//
// Runs of several processes, which are threads here: their checkpoints, records and errors.
//
// Covers: cupola/parallel/run_policy.hpp, cupola/processes/run/policy.hpp
#include <cupola/train/agreed_checkpoints.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/train/checkpoint_every.hpp>

#include "io/file_support.hpp"
#include "parallel/delayed_device.hpp"
#include "processes/sum_of_processes.hpp"
#include "processes/thread_processes.hpp"

namespace {

struct Net : Sequential<Input<1, 1, 2>, Conv2d<4, 1>, BatchNorm2d<>, ReLU, Flatten, Linear<2>> {};
template <class Averaging, class D = Host>
using Training = DataParallel<Net, CrossEntropy<2>, Sgd, Averaging, D>;

// Processes that exchange rows, and those of a collective, on a device with one step in flight and on one with three.
struct OfRows {
    using Divided = Training<ThreadConcatMean>;
};
struct OfCollective {
    using Divided = Training<SumOfProcesses>;
};
struct OfDelayed {
    using Divided = Training<SumOfProcesses, Delayed>;
};
#define EACH_ENGINE OfRows, OfCollective, OfDelayed

const std::vector<float> points{0, 0, 0, 1, 1, 0, 1, 1, 2, 0, 0, 2, 2, 2, 1, 2}, other_points(16, 0.5F),
    bad_points(16, std::numeric_limits<float>::quiet_NaN());
const std::vector<std::int32_t> labels{0, 1, 1, 0, 0, 0, 0, 1};
InMemory with(const std::vector<float>& values) { return InMemory({1, 1, 2}, values, labels, 2); }
const InMemory& data() {
    static const InMemory all = with(points);
    return all;
}

template <class T = Training<ConcatMean>>
typename T::Options options(const decltype(T::Options::averaging)& averaging = {}) {
    return {.replicas = 2,
            .batch_size = 2,
            .seed = 1,
            .optimizer = {.learning_rate = 0.1, .momentum = 0.9},
            .averaging = averaging,
            .moving_average = {.decay = 0.9}};
}
InMemoryBatches batches() { return InMemoryBatches(data(), {.batch_size = 2, .replicas = 2, .seed = 1}); }

/// What each of two processes throws in run(training, number).
template <class E, class Run>
std::vector<std::string> errors_of_two(Run&& run) {
    using Divided = typename E::Divided;
    Hub hub(2, true);
    return on_threads(2, [&](int number) {
        decltype(Divided::Options::averaging) averaging;
        averaging.hub = &hub;
        averaging.number = number;
        Divided training(options<Divided>(averaging));
        run(training, number);
    });
}

/// A callback that fails at a place of the run, on one process.
struct Fails {
    enum Place : std::uint8_t { nowhere, begin, step, record, end };
    Place where = nowhere;
    void fail_in(Place place) const {
        if (place == where) throw DataError("the disk is full");
    }
    void on_begin(Run&) const { fail_in(begin); }
    void on_step(const StepReport& report, Run&) const {
        if (report.step == 3) fail_in(step);
    }
    void on_record(const HistoryRecord&, Run&) const { fail_in(record); }
    void on_end(Run&) const { fail_in(end); }
};

/// An inspection between the average and the update that fails, on the process that writes summaries.
struct Inspects {
    bool fails;
    void on_step(const StepReport&, Run&) const {}
    [[nodiscard]] bool should_inspect(std::int64_t step) const { return fails && step == 2; }
    void inspect(const auto&) const { throw DataError("the disk is full"); }
};

const std::vector<std::string> full{"the disk is full", "process 0: the disk is full"};

}  // namespace

TEST_CASE_TEMPLATE("the checkpoints of two processes are those of one", E, EACH_ENGINE) {
    const io_tests::TemporaryFolder folder;
    const auto run = [&](auto& training, const std::string& path, bool writes) {
        std::optional<CheckpointDirectory> directory;
        if (writes) directory.emplace(path, CheckpointDirectoryOptions{.keep_best = true});
        AgreedCheckpoints agreed(training, writes ? &*directory : nullptr);
        CheckpointEvery checkpoints(training, agreed, {.every = 3}, [&] { return 1.0; });
        fit(training, batches(), {.steps = 7}, checkpoints);
    };
    Training<ConcatMean> alone(options());
    run(alone, folder.path() + "/one", true);
    CHECK(errors_of_two<E>([&](auto& training, int number) { run(training, folder.path() + "/two", number == 0); }) ==
          std::vector<std::string>(2));
    for (const char* name : {"model-3", "model-6", "model-7", "model-best"}) {
        CAPTURE(name);
        const std::string one = io_tests::read_bytes(text(folder.path(), "/one/", name, ".safetensors"));
        CHECK(!one.empty());
        CHECK(one == io_tests::read_bytes(text(folder.path(), "/two/", name, ".safetensors")));
    }
}

TEST_CASE_TEMPLATE("a checkpoint that the processes would write differently is not written", E, EACH_ENGINE) {
    const io_tests::TemporaryFolder folder;
    const auto errors = [&](auto&& change) {
        return errors_of_two<E>([&](auto& training, int number) {
            std::optional<CheckpointDirectory> directory;
            if (number == 0) directory.emplace(folder.path() + "/run");
            AgreedCheckpoints agreed(training, number == 0 ? &*directory : nullptr);
            training.step(batches());
            TrainingState state = training.state();
            if (number == 1) change(state);
            training.restore(state);
            fit(training, batches(), {.steps = 1}, CheckpointEvery(training, agreed));
        });
    };
    const auto other = [](const std::string& what) {
        const std::string message = "process 1 has another " + what +
                                    " than process 0 in the checkpoint of step 2, which is not written: a process "
                                    "computed a different result";
        return std::vector<std::string>{message, message};
    };
    CHECK(errors([](TrainingState& state) { state.averages[3] += 1; }) == other("value of the moving averages"));
    // The momentum of the process made other parameters in the step before the checkpoint.
    CHECK(errors([](TrainingState& state) { state.optimizer[0].values[1] += 1; }) == other("value of the parameters"));
    CHECK(list_checkpoints(folder.path() + "/run").empty());
}

TEST_CASE_TEMPLATE("an error of the process that writes a checkpoint ends the run on all", E, EACH_ENGINE) {
    for (const bool at_end : {false, true}) {
        CAPTURE(at_end);
        const io_tests::TemporaryFolder folder;
        const std::string path = folder.path() + "/run";
        const auto errors = errors_of_two<E>([&](auto& training, int number) {
            std::optional<CheckpointDirectory> directory;
            if (number == 0) directory.emplace(path);
            AgreedCheckpoints agreed(training, number == 0 ? &*directory : nullptr);
            if (number == 0) std::filesystem::remove_all(path);
            try {
                fit(training, batches(), {.steps = 5}, CheckpointEvery(training, agreed, {.every = at_end ? 0 : 2}));
            } catch (const DataError&) {
                CHECK(training.step() == (at_end ? 5 : 2));
                throw;
            }
        });
        CHECK(errors[0].find(path) != std::string::npos);
        CHECK(errors[1] == "process 0: " + errors[0]);
    }
}

TEST_CASE_TEMPLATE("a callback that fails on one process ends the run on all, and the last checkpoint is written", E,
                   EACH_ENGINE) {
    for (const Fails::Place place : {Fails::begin, Fails::step, Fails::record, Fails::end}) {
        CAPTURE(place);
        const io_tests::TemporaryFolder folder;
        const auto errors = errors_of_two<E>([&](auto& training, int number) {
            std::optional<CheckpointDirectory> directory;
            if (number == 0) directory.emplace(folder.path());
            AgreedCheckpoints agreed(training, number == 0 ? &*directory : nullptr);
            fit(training, batches(), {.steps = 8, .every = 4}, CheckpointEvery(training, agreed, {.every = 4}),
                Fails{number == 0 ? place : Fails::nowhere});
        });
        CHECK(errors == full);
        const auto files = list_checkpoints(folder.path());
        REQUIRE(files.size() == (place == Fails::begin ? 0 : place == Fails::end ? 2 : 1));
        if (!files.empty()) CHECK(files[0].step == (place == Fails::end ? 8 : 4));
    }
}

TEST_CASE_TEMPLATE("a step that fails on one process after the vote ends the run on all, and is in no checkpoint", E,
                   EACH_ENGINE) {
    const io_tests::TemporaryFolder folder;
    const auto errors = errors_of_two<E>([&](auto& training, int number) {
        std::optional<CheckpointDirectory> directory;
        if (number == 0) directory.emplace(folder.path());
        AgreedCheckpoints agreed(training, number == 0 ? &*directory : nullptr);
        // The other process is at its checkpoint when it hears of the error.
        fit(training, batches(), {.steps = 8}, CheckpointEvery(training, agreed, {.every = 3}), Inspects{number == 0});
    });
    CHECK(errors == full);
    const auto files = list_checkpoints(folder.path());
    REQUIRE(files.size() == 1);
    CHECK(files[0].step == 3);
}

TEST_CASE_TEMPLATE("runs of processes with other options, data or validations are rejected", E, EACH_ENGINE) {
    const auto errors = [](auto&& fit_options) {
        return errors_of_two<E>([&](auto& training, int number) {
            FitOptions<std::remove_cvref_t<decltype(training)>> options{.epochs = 2};
            auto source = batches();
            fit_options(options, number);
            fit(training, source, options, Progress{});
        });
    };
    const auto both = [](const std::string& message) { return std::vector<std::string>{message, message}; };
    CHECK(errors([](auto& o, int number) { o.epochs = 2 + number; }) ==
          both("process 1 has another .epochs than process 0: 3, not 2"));
    CHECK(errors([](auto& o, int number) { o.patience = 2 + number; }) ==
          both("process 1 has another .patience than process 0: 3, not 2"));
    const InMemory other = with(other_points), bad = with(bad_points);
    const auto of_validation = errors([&](auto& o, int number) {
        o.validation = EvaluationBatches(number == 0 ? data() : other, IdentityTransform{}, 2);
    });
    // Devices of a collective may round differently: the validation of process 0 is that of all.
    if (std::is_same_v<E, OfRows>)
        CHECK(of_validation[0].starts_with("process 1 has another validation_loss after 2 steps than process 0: "));
    else
        CHECK(of_validation[0] == "");
    CHECK(of_validation[1] == of_validation[0]);
    // Other training data, of as many samples.
    CHECK(errors_of_two<E>([&](auto& training, int number) {
              InMemoryBatches source(number == 0 ? data() : other, {.batch_size = 2, .replicas = 2, .seed = 1});
              fit(training, source, {.steps = 1});
          })[0]
              .starts_with("process 1 has another content of the batches than process 0: crc32c "));
    // A validation that fails on one process.
    const auto of_bad = errors([&](auto& o, int number) {
        o.validation = EvaluationBatches(number == 0 ? data() : bad, IdentityTransform{}, 2);
    });
    CHECK(of_bad[1].find("finite") != std::string::npos);
    CHECK(of_bad[0] == "process 1: " + of_bad[1]);
}
