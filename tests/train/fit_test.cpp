// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/parallel/step_report.hpp, cupola/train/evaluate.hpp, cupola/train/run.hpp
// Covers: cupola/train/stop_when.hpp
#include <cupola/train/fit.hpp>

#include "../test.hpp"

#include <regex>

#include <unistd.h>

#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

struct Two : Sequential<Input<2>, Linear<8>, ReLU, Linear<2>> {};
using Training = DataParallel<Two, CrossEntropy<2>, Sgd, ConcatMean, Host>;

struct Points {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    Points() {
        for (std::uint64_t i = 0; i < 64; ++i) {
            const auto words = RandomStream(1, RngDomain::user, 0, i).words(0);
            values.insert(values.end(), {uniform(words[0]) - 0.5F, uniform(words[1]) - 0.5F});
            labels.push_back(values[2 * i] > values[2 * i + 1] ? 1 : 0);
        }
    }
};

struct Everything {
    std::vector<std::string> seen;
    void on_begin(Run& run) { seen.push_back("begin " + std::to_string(run.last_step)); }
    void on_step(const StepReport& report, Run&) { seen.push_back("step " + std::to_string(report.step)); }
    void on_end(Run&) { seen.push_back("end"); }
};
struct OnlyEnd {
    int ends = 0;
    void on_end(Run&) { ++ends; }
};

static_assert(Callback<Everything> && Callback<OnlyEnd> && Callback<LogEvery> && Callback<Progress>);
static_assert(!Callback<int> && !Callback<Points>);

std::string written(std::FILE* file) {
    std::string text;
    std::rewind(file);
    for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
    return text;
}

}  // namespace

TEST_CASE("callbacks are called in order with the hooks they have, and keep their state") {
    const Points points;
    const InMemory data(Two::input_shape, points.values, points.labels, 2);
    InMemoryBatches batches(data, {.batch_size = 16, .replicas = 2, .seed = 1});
    Training training({.replicas = 2, .batch_size = 16});
    Everything everything;
    OnlyEnd only_end;
    CHECK(fit(training, batches, {.steps = 2}, everything, only_end).steps == 2);
    CHECK(everything.seen == std::vector<std::string>{"begin 2", "step 0", "step 1", "end"});
    CHECK(only_end.ends == 1);
    everything.seen.clear();
    CHECK(fit(training, batches, {.steps = 1}, everything).steps == 1);  // continues where it was
    CHECK(everything.seen == std::vector<std::string>{"begin 3", "step 2", "end"});
}

TEST_CASE("a callback stops the run, and an exception of a step is thrown after the callbacks have ended") {
    const Points points;
    const InMemory data(Two::input_shape, points.values, points.labels, 2);
    InMemoryBatches batches(data, {.batch_size = 16, .replicas = 1, .seed = 1});
    Training training({.batch_size = 16});
    CHECK(fit(training, batches, {.steps = 100}, StopWhen{[](const StepReport& r) { return r.step == 6; }}).steps == 7);
    OnlyEnd only_end;
    const auto failing = [](std::int64_t, int, HostContext&) -> BatchView { throw DataError("gone"); };
    CHECK_THROWS_WITH_AS(fit(training, failing, {.steps = 5}, only_end), "gone", DataError);
    CHECK(only_end.ends == 1);
    CHECK_THROWS_WITH_AS(fit(training, batches, {.steps = -1}), "a run must have 0 or more steps, not -1",
                         InvalidArgument);
}

TEST_CASE("a hook with other parameters, which would never be called, is named") {
    struct Records {
        void on_record(const StepReport&, Run&) {}
    };
    struct Notes {
        void on_record(const HistoryRecord&, Run&) {}
    };
    constexpr CompileTimeMessage message = callback_diagnostic<Records>();
    CHECK(contains(std::string(message.characters, message.size),
                   "Records::on_record cannot be called as `on_record(const HistoryRecord&, Run&)`"));
    static_assert(Callback<Notes> && !Callback<Records>);
}

TEST_CASE("training on data in memory learns them") {
    const Points points;
    const InMemory data(Two::input_shape, points.values, points.labels, 2);
    InMemoryBatches batches(data, {.batch_size = 16, .replicas = 2, .seed = 1});
    Training training(
        {.replicas = 2, .batch_size = 16, .seed = 1, .optimizer = {.learning_rate = 0.3, .momentum = 0.9}});
    fit(training, batches, {.steps = 300});
    CHECK(evaluate(training, EvaluationBatches(data, IdentityTransform{}, 16)).accuracy() > 0.95);
}

TEST_CASE("the log line has the tutorial's format, every N steps from step 0") {
    const Points points;
    const InMemory data(Two::input_shape, points.values, points.labels, 2);
    InMemoryBatches batches(data, {.batch_size = 16, .replicas = 2, .seed = 1});
    Training training({.replicas = 2, .batch_size = 16});
    std::FILE* file = std::tmpfile();
    fit(training, batches, {.steps = 21}, LogEvery(10, file));
    const std::string log = written(file);
    std::fclose(file);
    const std::regex line(
        R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: step (\d+), loss = \d+\.\d{2,} \(\d+\.\d examples/sec; \d+\.\d{3} sec/batch\)\n)");
    std::string steps;
    for (auto match = std::sregex_iterator(log.begin(), log.end(), line); match != std::sregex_iterator(); ++match) {
        steps += (*match)[1].str() + " ";
    }
    CHECK(steps == "0 10 20 ");
    CHECK(std::regex_replace(log, line, "").empty());
}

TEST_CASE("a log that cannot be written is an error with its reason") {
    std::FILE* full = std::fopen("/dev/full", "w");
    REQUIRE(full != nullptr);
    LogEvery log(1, full);
    Run run{};
    StepReport report;
    CHECK(message_of<DataError>([&] { log.on_step(report, run); }) ==
          "the log line of step 0 could not be written: No space left on device");
    std::fclose(full);
    CHECK(message_of<InvalidArgument>([] { LogEvery negative(-1); }) ==
          "a line must be logged every 0 (never) or more steps, not -1");
}

TEST_CASE("progress is overwritten in place on a terminal and not printed elsewhere") {
    Run run{.first_step = 0, .last_step = 4, .started = monotonic_seconds() - 30.5};
    StepReport report;
    report.step = 2;
    report.loss = 1.5;
    std::FILE* shown = std::tmpfile();
    Progress progress(true, shown);
    progress.on_step(report, run);
    progress.on_end(run);
    CHECK(written(shown) == "\r\033[K3 of 4 steps, loss 1.500, 0:00:10 left\r\r\033[K");
    std::fclose(shown);
    std::FILE* hidden = std::tmpfile();
    Progress silent(false, hidden);
    silent.on_step(report, run);
    silent.on_end(run);
    CHECK(written(hidden).empty());
    std::fclose(hidden);
}

TEST_CASE("every callback hears of the end of a run, although one of them throws then") {
    struct Ends {
        std::vector<int>* ended;
        int number;
        bool throws;
        void on_end(Run&) {
            ended->push_back(number);
            require<DataError>(!throws, "report ", number, " cannot be written");
        }
    };
    std::vector<int> ended;
    const Points points;
    const InMemory data(Two::input_shape, points.values, points.labels, 2);
    InMemoryBatches batches(data, {.batch_size = 16, .seed = 1});
    Training training({.batch_size = 16});
    CHECK(message_of<DataError>([&] {
              fit(training, batches, {.steps = 2}, Ends{&ended, 1, false}, Ends{&ended, 2, true}, Ends{&ended, 3, true},
                  Ends{&ended, 4, false});
          }) == "report 2 cannot be written");
    CHECK(ended == std::vector<int>{1, 2, 3, 4});
}
