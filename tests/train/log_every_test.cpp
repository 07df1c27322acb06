// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/log_every.hpp>

#include "../test.hpp"

#include <regex>

#include <sys/resource.h>

#include "child_process.hpp"
#include "comma_locale.hpp"
#include "throws_with.hpp"

namespace {

/// Two replicas of 8 samples: losses 2 and 4, of which 0.5 regularises.
StepReport report_of(std::int64_t step, double first = 1.5) {
    const auto replica = [](double data) {
        return ReplicaReport{.samples = 8,
                             .weight = 8,
                             .parts = {{"cross_entropy", data}, {"weight_decay/local3", 0.5}},
                             .total = data + 0.5};
    };
    return {.step = step,
            .samples = 16,
            .weight = 16,
            .learning_rate = 0.0125,
            .loss = (first + 3.5) / 2 + 0.5,
            .replicas = {replica(first), replica(3.5)},
            .parts = {{"cross_entropy", (first + 3.5) / 2}, {"weight_decay/local3", 0.5}}};
}

/// What a log writes by what `use` calls, in a run that began so many seconds ago.
template <class Use>
std::string written_by(LogOptions options, double seconds, Use&& use) {
    options.file = std::tmpfile();
    REQUIRE(options.file != nullptr);
    LogEvery log(options);
    Run run{.started = monotonic_seconds() - seconds};
    use(log, run);
    std::string written;
    std::rewind(options.file);
    for (int c; (c = std::fgetc(options.file)) != EOF;) written += static_cast<char>(c);
    std::fclose(options.file);
    return written;
}

/// The output of a log with these options for the steps from 0, with T for every date and time.
template <class Set>
std::string log_of(const LogOptions& options, int steps, Set&& set) {
    std::string written = written_by(options, 1, [&](LogEvery& log, Run& run) {
        set(log);
        log.on_begin(run);
        for (int step = 0; step < steps; ++step) log.on_step(report_of(step), run);
    });
    for (const char* time :
         {R"(^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6})", R"(\n\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6})"}) {
        written = std::regex_replace(written, std::regex(time), time[0] == '^' ? "T" : "\nT");
    }
    written = std::regex_replace(written, std::regex(R"(\(\d+\.\d examples/sec; \d+\.\d{3} sec/batch\))"), "(R)");
    return std::regex_replace(written, std::regex(R"lit("(examples_per_second|seconds_per_step)":\d[-+.e\d]*)lit"),
                              "\"$1\":T");
}
std::string log_of(const LogOptions& options, int steps) {
    return log_of(options, steps, [](LogEvery&) {});
}

}  // namespace

TEST_CASE("the loss of a line is the mean's, the last replica's, or the mean's and each replica's") {
    CHECK(log_of({}, 1) == "T: step 0, loss = 3.00 (R)\n");
    CHECK(log_of({.loss = LossReduction::last_replica}, 1) == "T: step 0, loss = 4.00 (R)\n");
    CHECK(log_of({.loss = LossReduction::each_replica}, 1) == "T: step 0, loss = 3.00 (R), losses = 2.00 4.00\n");
}

TEST_CASE(
    "a loss scale is in the line of a step, with whether the step was skipped, and a skipped loss is not smoothed") {
    const auto use = [](LogEvery& log, Run& run) {
        log.on_begin(run);
        StepReport report = report_of(0);
        report.loss_scale = 65536;
        log.on_step(report, run);
        const double smoothed = log.losses().total().smoothed;
        report = report_of(1, std::numeric_limits<double>::quiet_NaN());
        report.loss_scale = 65536;
        report.skipped = true;
        report.skipped_steps = 1;
        log.on_step(report, run);
        CHECK(log.losses().total().smoothed == smoothed);
        report = report_of(2);
        report.loss_scale = 1;
        report.skipped_steps = 1;
        log.on_step(report, run);
    };
    const std::string lines = written_by({.every = 1, .learning_rate = true}, 1, use);
    CHECK(contains(lines, "learning_rate = 0.0125, loss_scale = 65536\n"));
    CHECK(contains(lines, "loss = nan"));
    CHECK(contains(lines, "learning_rate = 0.0125, loss_scale = 65536 (skipped)\n"));
    CHECK(contains(lines, "learning_rate = 0.0125, loss_scale = 1\n"));
    const std::string json = written_by({.every = 1, .json = true}, 1, use);
    CHECK(
        contains(json, R"("learning_rate":0.0125,"loss_scale":65536,"skipped":false,"skipped_steps":0,"examples":16)"));
    CHECK(contains(
        json, R"({"step":1,"loss":null,"learning_rate":0.0125,"loss_scale":65536,"skipped":true,"skipped_steps":1)"));
    CHECK(!contains(log_of({.json = true}, 1), "loss_scale"));
}

TEST_CASE("a record with a validation has a line, and its time is not that of a step") {
    const auto use = [](LogEvery& log, Run& run) {
        log.on_begin(run);
        log.on_record({.step = 3, .loss = 0.5}, run);
        log.on_record({.epoch = 2,
                       .step = 6,
                       .loss = 0.000123,
                       .validation_loss = 1.5,
                       .metrics = {{"accuracy", 0.875}, {"b", std::numeric_limits<double>::quiet_NaN()}},
                       .learning_rate = 0.25,
                       .seconds = 1000,
                       .validation_seconds = 998},
                      run);
        log.on_step(report_of(6), run);
    };
    CHECK(std::regex_match(
        written_by({.every = 2}, 1000, use),
        std::regex(
            R"([-0-9]{10} [:.0-9]{15}: step 6, epoch 2, loss = 0\.000123, validation loss = 1\.50, accuracy = 0\.875, b = nan \(1000\.0 sec\)\n)"
            R"([-0-9]{10} [:.0-9]{15}: step 6, loss = 3\.00 \(\d\.\d examples/sec; [23]\.\d{3} sec/batch\)\n)")));
    const std::string json = written_by({.every = 4, .json = true}, 1000, use);
    CHECK(
        json ==
        R"({"step":6,"epoch":2,"training_loss":0.000123,"validation_loss":1.5,"metrics":{"accuracy":0.875,"b":null},"learning_rate":0.25,"seconds":1000})"
        "\n");
    CHECK(written_by({.every = 0, .json = true}, 1000, use) == json);  // none of steps
}

TEST_CASE("losses below 1 have three significant digits") {
    const auto use = [](LogEvery& log, Run& run) {
        log.on_begin(run);
        log.on_step(
            {.samples = 8,
             .weight = 8,
             .loss = 0.000123,
             .replicas = {{.samples = 8, .weight = 8, .parts = {{"mean_squared_error", 0.00001}}, .total = 0.0456}},
             .parts = {{"mean_squared_error", 0.00001}}},
            run);
    };
    const std::string line = written_by({.loss = LossReduction::each_replica, .parts = true}, 1, use);
    CHECK(line.find("loss = 0.000123 (") != std::string::npos);
    CHECK(line.find("losses = 0.0456, ") != std::string::npos);
    CHECK(line.find("mean_squared_error = 1.00e-05 (smoothed 1.00e-05)") != std::string::npos);
}

TEST_CASE("the learning rate and the parts of the loss follow on the line if requested") {
    CHECK(log_of({.learning_rate = true}, 1) == "T: step 0, loss = 3.00 (R), learning_rate = 0.0125\n");
    CHECK(log_of({.learning_rate = true, .parts = true}, 1) ==
          "T: step 0, loss = 3.00 (R), learning_rate = 0.0125, cross_entropy = 2.5000 (smoothed 2.5000), "
          "weight_decay/local3 = 0.5000 (smoothed 0.5000), total_loss = 3.0000 (smoothed 3.0000)\n");
}

TEST_CASE("a line every N steps smooths over the steps in between too") {
    CHECK(log_of({.every = 2, .parts = true, .averages = {.from_zero = true}}, 3) ==
          "T: step 0, loss = 3.00 (R), cross_entropy = 2.5000 (smoothed 0.2500), weight_decay/local3 = 0.5000 "
          "(smoothed 0.0500), "
          "total_loss = 3.0000 (smoothed 0.3000)\n"
          "T: step 2, loss = 3.00 (R), cross_entropy = 2.5000 (smoothed 0.6775), weight_decay/local3 = 0.5000 "
          "(smoothed 0.1355), "
          "total_loss = 3.0000 (smoothed 0.8130)\n");
    CHECK(log_of({.every = 0}, 3).empty());
}

TEST_CASE("smoothed losses continue from the values that are set") {
    LossAverages before({.from_zero = true});
    for (int step = 0; step < 2; ++step) before.update(report_of(step));
    const std::string line = log_of({.parts = true}, 1, [&](LogEvery& log) { log.losses() = before; });
    CHECK(line.find("total_loss = 3.0000 (smoothed 0.8130)") != std::string::npos);
}

TEST_CASE("as JSON a line is one object with everything in it") {
    CHECK(log_of({.json = true, .averages = {.from_zero = true}}, 1) ==
          R"({"step":0,"loss":3,"learning_rate":0.0125,"examples":16,"examples_per_second":T,"seconds_per_step":T,)"
          R"("replicas":[2,4],"parts":{"cross_entropy":{"raw":2.5,"smoothed":0.25},)"
          R"("weight_decay/local3":{"raw":0.5,"smoothed":0.05},"total_loss":{"raw":3,"smoothed":0.3}}})"
          "\n");
}

TEST_CASE("a locale with a decimal comma changes no line") {
    const auto lines = [](bool json) {
        return log_of({.every = 1, .learning_rate = true, .parts = true, .json = json}, 3);
    };
    const std::string text = lines(false), json = lines(true);
    const CommaLocale comma;
    CHECK(lines(false) == text);
    CHECK(lines(true) == json);
}

TEST_CASE("a long name is written whole, and JSON escapes its quotes") {
    const std::string name = std::string(300, 'n') + "\"\\";
    const auto line = [&](bool as_json) {
        return written_by({.parts = true, .json = as_json}, 1, [&](LogEvery& log, Run& run) {
            log.on_begin(run);
            StepReport report = report_of(0);
            report.parts[1].name = name;
            log.on_step(report, run);
            log.on_record({.step = 1, .validation_loss = 2, .metrics = {{.name = name, .value = 0.25}}}, run);
        });
    };
    const std::string text = line(false), json = line(true), escaped = std::string(300, 'n') + R"(\"\\)";
    CHECK(contains(text, ", " + name + " = 0.5000 (smoothed "));
    CHECK(contains(text, ", " + name + " = 0.250 ("));
    CHECK(contains(json, ",\"" + escaped + R"(":{"raw":0.5,"smoothed":)"));
    CHECK(contains(json, R"("metrics":{")" + escaped + R"(":0.25},)"));
}

TEST_CASE("a non-finite number is null in JSON") {
    const std::string line = written_by({.json = true}, 0, [](LogEvery& log, Run& run) {
        log.on_step(report_of(0, std::numeric_limits<double>::infinity()), run);
    });
    CHECK(line.find(R"("loss":null,)") != std::string::npos);
    CHECK(line.find(R"("replicas":[null,4])") != std::string::npos);
    CHECK(line.find("inf") == std::string::npos);
    CHECK(line.find("nan") == std::string::npos);
}

TEST_CASE("examples per second count all replicas since the last line, and seconds a whole step") {
    std::FILE* file = std::tmpfile();
    REQUIRE(file != nullptr);
    LogEvery log({.every = 4, .file = file, .json = true});
    Run run{.started = monotonic_seconds() - 2};
    log.on_begin(run);
    log.on_step(report_of(0), run);
    std::rewind(file);
    char line[400] = {};
    REQUIRE(std::fgets(line, sizeof line, file) != nullptr);
    std::fclose(file);
    double rate = 0, time = 0;
    const std::string text(line);
    const auto number = [&](const char* name) {
        return std::stod(text.substr(text.find(name) + std::string(name).size() + 2));
    };
    rate = number("examples_per_second");
    time = number("seconds_per_step");
    // Two seconds and what the test itself took.
    CHECK(time >= 2);
    CHECK(rate * time == doctest::Approx(16).epsilon(1e-6));
}

TEST_CASE("a log that reaches the limit on file sizes is an error with the step, and no signal ends the process") {
    char name[] = "/tmp/cupola_log_XXXXXX";
    close(mkstemp(name));
    const int status = wait_status_of([&] {
        std::signal(SIGXFSZ, SIG_DFL);
        const rlimit limit{10, 10};
        setrlimit(RLIMIT_FSIZE, &limit);
        LogOptions options{.every = 1};
        options.file = std::fopen(name, "ae");
        LogEvery log(options);
        Run run{.started = monotonic_seconds() - 1};
        log.on_begin(run);
        const std::string said = message_of<DataError>([&] { log.on_step(report_of(7), run); });
        std::fflush(nullptr);  // as the process's end does
        _exit(said == "the log line of step 7 could not be written: File too large" ? 0 : 1);
    });
    std::remove(name);
    CHECK(status == 0);
}
