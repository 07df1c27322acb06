// SPDX-License-Identifier: Apache-2.0
//
// Runs in a folder by epochs, with validations, metrics, patience and the best state: the records, and that a run that was
// stopped or killed anywhere ends as one that was not.
// Covers: cupola/train/impl/run_records.hpp
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/train/training_run.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/metrics.hpp>
#include <cupola/net/named_values.hpp>

#include "child_process.hpp"
#include "io/file_support.hpp"
#include "throws_with.hpp"

namespace {

struct Heads : Sequential<Input<2>, Named<"hidden", Linear<6>>, ReLU, Keep<"body">, Named<"kinds", Linear<2>>,
                          Output<"kind">, From<"body">, Named<"boxes", Linear<2>>, Output<"box">> {};
using HeadLosses = Losses<At<"kind", CrossEntropy<2>>, At<"box", Weighted<0.5, MeanSquaredError>>>;
using Training = DataParallel<Heads, HeadLosses, Sgd, ConcatMean, Host>;
using Options = FitOptions<Training>;

/// 20 samples for training and 8 for validation; 3 steps per epoch of 8 samples, of which one ends inside a step.
struct Points {
    std::vector<float> samples, boxes;
    std::vector<std::int32_t> kinds;
    InMemory data;
    explicit Points(std::uint64_t seed, std::uint64_t count) : data(made(seed, count)) {}

private:
    InMemory made(std::uint64_t seed, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto words = RandomStream(seed, RngDomain::user, 0, i).words(0);
            const float x = uniform(words[0]) - 0.5F, y = uniform(words[1]) - 0.5F;
            samples.insert(samples.end(), {x, y});
            boxes.insert(boxes.end(), {x * y, x - y});
            kinds.push_back(x > y ? 1 : 0);
        }
        return {{2}, samples, {{"kind", {1}, kinds}, {"box", {2}, boxes}}};
    }
};

/// What a sink was told: "start 3", "4 validation/loss".
struct Events final : SummarySink {
    static inline std::vector<std::string> told;
    void start(std::int64_t step) override { told.push_back(text("start ", step)); }
    void write(std::int64_t step, const StepSummary& summary) override {
        for (const auto& [tag, value] : summary.scalars) {
            if (tag.starts_with("validation/") || tag == "epoch") told.push_back(text(step, ' ', tag));
        }
    }
    static std::unique_ptr<SummarySink> open(const std::string&) { return std::make_unique<Events>(); }
};

/// Raises a signal at its n-th call of on_step and on_record.
struct RaisesAt {
    int signal = SIGTERM;
    std::int64_t call = -1;
    std::int64_t calls = 0;
    void on_step(const StepReport&, Run&) { count(); }
    void on_record(const HistoryRecord&, Run&) { count(); }
    void count() {
        if (calls++ == call) std::raise(signal);
    }
};

struct Fixture {
    Points points{1, 20}, others{2, 8};
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> output{std::tmpfile(), &std::fclose};
    Schedule rate = Schedule(0.1);
    std::optional<Training> training{};
    History history{};

    /// The exit status of a run with these options, whose records have metrics.
    int run(TrainingRunOptions of_run, Options options, RaisesAt raises = {}) {
        of_run.log = {.every = 1, .file = output.get(), .json = of_run.log.json};
        TrainingRun whole(std::move(of_run));
        training.emplace(
            Training::Options{.batch_size = 8, .seed = 1, .optimizer = {.learning_rate = rate, .momentum = 0.9}});
        InMemoryBatches batches(points.data, {.batch_size = 8, .seed = 1});
        EvaluationBatches validation(others.data, IdentityTransform{}, 8);
        options.validation = validation;
        options.metrics = {metrics::At<"kind", metrics::Accuracy>{}};
        const int status = whole.train(*training, batches, NoTest{}, options, raises);
        history = whole.history();
        return status;
    }
    std::string said() const {
        std::fflush(output.get());
        std::rewind(output.get());
        std::string text(1'000'000, '\0');
        text.resize(std::fread(text.data(), 1, text.size(), output.get()));
        return text;
    }
};

std::string history_of(const io_tests::TemporaryFolder& folder, const std::string& run) {
    return io_tests::read_bytes(folder.path(run) + "/history.csv");
}

/// A history without its last column, the seconds.
std::string without_seconds(const std::string& csv) {
    std::string result;
    for (std::size_t at = 0; at < csv.size();) {
        const std::size_t end = csv.find('\n', at);
        const std::string line = csv.substr(at, end - at);
        result += line.substr(0, line.rfind(',')) + '\n';
        at = end + 1;
    }
    return result;
}

std::int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

/// The rate from which on the losses get worse.
Schedule spoiled_after(std::int64_t steps) { return piecewise({steps}, {0.1, 30.0}); }

const char* environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

}  // namespace

TEST_CASE("a run by epochs writes its records to the log, the events and a CSV file") {
    const io_tests::TemporaryFolder folder;
    Fixture f;
    Events::told.clear();
    CHECK(f.run({.folder = folder.path("run"), .events = Events::open}, {.epochs = 2}) == 0);
    CHECK(f.training->step() == 5);  // 40 samples, 8 in a step
    REQUIRE(f.history.records.size() == 2);
    CHECK(f.history.records[0].step == 3);
    CHECK(*f.history.records[1].epoch == 2);
    CHECK(history_of(folder, "run") == f.history.csv());
    CHECK(history_of(folder, "run")
              .starts_with(
                  "epoch,step,loss,validation_loss,kind/loss,box/loss,kind/accuracy,learning_rate,seconds\n1,3,"));
    std::vector<std::string> expected{"start 0"};
    for (const char* const step : {"2 ", "4 "}) {
        for (const char* const tag :
             {"validation/loss", "validation/kind/loss", "validation/box/loss", "validation/kind/accuracy", "epoch"})
            expected.push_back(std::string(step) + tag);
    }
    CHECK(Events::told == expected);
    const std::string said = f.said(), log = io_tests::read_bytes(folder.path("run/train.log"));
    for (const std::string& lines : {said, log}) {
        CHECK(contains(lines, "step 3, epoch 1, loss = "));
        CHECK(contains(lines, text("kind/accuracy = ", loss_text(f.history.records[1].metric("kind/accuracy"), 3))));
    }
    for (const std::string& lines : {said, log})
        CHECK(contains(lines, text("\nbest record: validation_loss = ",
                                   loss_text(*f.history.records[*f.history.best].validation_loss, 3), " after ",
                                   f.history.records[*f.history.best].step, " steps\n")));
}

TEST_CASE("a run that is stopped anywhere and resumed has the records, the events and the state of one that is not") {
    const io_tests::TemporaryFolder folder;
    for (const std::int64_t checkpoint_every : {0, 2, 3}) {
        const auto run = [&](const std::string& name, Fixture& f, RaisesAt raises) {
            return f.run({.folder = folder.path(name),
                          .resume = Resume::if_there,
                          .checkpoint_every = checkpoint_every,
                          .events = Events::open},
                         {.epochs = 4, .patience = 10, .restore_best = true}, raises);
        };
        Fixture whole;
        whole.rate = spoiled_after(6);
        const std::string all = text("whole", checkpoint_every);
        Events::told.clear();
        CHECK(run(all, whole, {}) == 0);
        const std::vector<std::string> events = Events::told;
        REQUIRE(whole.history.records.size() == 4);
        const std::int64_t best = whole.history.records[*whole.history.best].step;
        CHECK(best < 10);  // the last record is not the best, so that restoring it is seen
        CHECK(whole.training->step() == best);

        // Ten steps and four records: a signal at each, and one at every call of a run.
        for (std::int64_t call = 0; call < 14; ++call) {
            Fixture parted;
            parted.rate = whole.rate;
            const std::string name = text("parted", checkpoint_every, '-', call);
            Events::told.clear();
            CHECK(run(name, parted, {.call = call}) == 128 + SIGTERM);
            CHECK(run(name, parted, {}) == 0);
            CHECK(without_seconds(history_of(folder, name)) == without_seconds(history_of(folder, all)));
            CHECK(parted.training->step() == best);
            CHECK(parted.training->parameters() == whole.training->parameters());
            CHECK(parted.training->state().optimizer == whole.training->state().optimizer);
            const Checkpoint mine = read_checkpoint(folder.path(name + "/model-10.safetensors"), Heads::layers),
                             theirs = read_checkpoint(folder.path(all + "/model-10.safetensors"), Heads::layers);
            CHECK(mine.state.parameters == theirs.state.parameters);
            CHECK(read_checkpoint(folder.path(name + "/model-best.safetensors"), Heads::layers).state.parameters ==
                  whole.training->parameters());
            // Every validation is written once: none is made twice, and the second start drops none of the first.
            std::erase_if(Events::told, [](const std::string& each) { return each.starts_with("start"); });
            CHECK(Events::told == std::vector<std::string>(events.begin() + 1, events.end()));
        }
    }
    Fixture often;
    often.rate = spoiled_after(6);
    int runs = 0;
    const TrainingRunOptions options{.folder = folder.path("often"), .resume = Resume::if_there};
    while (often.run(options, {.epochs = 4, .patience = 10, .restore_best = true}, {.call = 1}) != 0)
        REQUIRE(++runs < 20);
    CHECK(runs >= 4);
    CHECK(without_seconds(history_of(folder, "often")) == without_seconds(history_of(folder, "whole0")));
    // The seconds go on too.
    double before = 0;
    for (const HistoryRecord& record : often.history.records) {
        CHECK(record.seconds > before);
        before = record.seconds;
    }
}

TEST_CASE("in a child: one part of a run that is killed" * doctest::skip()) {
    Fixture f;
    f.rate = spoiled_after(6);
    f.run({.folder = environment("CUPOLA_TEST_FOLDER"), .resume = Resume::if_there, .checkpoint_every = 2},
          {.epochs = 4, .patience = 10, .restore_best = true},
          {.signal = SIGKILL, .call = std::atoi(environment("CUPOLA_TEST_CALL"))});
}

TEST_CASE("a run that is killed anywhere and resumed has the records and the state of one that is not") {
    const io_tests::TemporaryFolder folder;
    Fixture whole, f;
    whole.rate = f.rate = spoiled_after(6);
    const Options options{.epochs = 4, .patience = 10, .restore_best = true};
    whole.run({.folder = folder.path("whole")}, options);
    for (int call = 0; call < 14; ++call) {
        const std::string name = text("killed", call);
        CHECK(!run_in_child("in a child: one part of a run that is killed",
                            {{"CUPOLA_TEST_FOLDER", folder.path(name)}, {"CUPOLA_TEST_CALL", text(call)}})
                   .passed);
        CHECK(list_checkpoints(folder.path(name)).empty() == (call < 2));
        // What a kill in the middle of a write leaves.
        const std::string csv = folder.path(name) + "/history.csv", temporary = csv + ".partial-7-0";
        io_tests::write_bytes(temporary, "epoch");
        if (call % 2 == 0) io_tests::write_bytes(csv, history_of(folder, name) + "9,99,0.1");
        CHECK(f.run({.folder = folder.path(name), .resume = Resume::if_there}, options) == 0);
        CHECK(without_seconds(history_of(folder, name)) == without_seconds(history_of(folder, "whole")));
        CHECK(f.training->parameters() == whole.training->parameters());
        CHECK(io_tests::read_bytes(temporary).empty());
    }
}

TEST_CASE("the patience goes on in a resumed run, and ends it where it would have ended") {
    const io_tests::TemporaryFolder folder;
    const Options options{.epochs = 20, .patience = 3};
    Fixture whole, f;
    whole.rate = f.rate = spoiled_after(6);
    CHECK(whole.run({.folder = folder.path("whole")}, options) == 0);
    CHECK(whole.history.stopped_early);
    CHECK(whole.history.records.size() < 15);
    for (const std::string& lines : {whole.said(), io_tests::read_bytes(folder.path("whole/train.log"))})
        CHECK(contains(lines, "\nended early: validation_loss was not better in 3 records\n"));

    // Stopped between two records without a better one.
    const TrainingRunOptions parted{.folder = folder.path("parted"), .resume = Resume::if_there};
    const auto calls = static_cast<std::int64_t>(whole.training->step() + lines_of(whole.history.csv()) - 1);
    CHECK(f.run(parted, options, {.call = calls - 5}) == 128 + SIGTERM);
    CHECK(f.run(parted, options) == 0);
    CHECK(f.history.stopped_early);
    CHECK(f.training->step() == whole.training->step());
    CHECK(without_seconds(history_of(folder, "parted")) == without_seconds(history_of(folder, "whole")));

    CHECK(f.run(parted, options) == 0);
    CHECK(f.history.steps == 0);
    CHECK(contains(f.said(), text("nothing to train: .patience was over after ", whole.training->step(), " steps")));
    // With more patience the run goes on.
    CHECK(f.run(parted, {.epochs = 20, .patience = 4}) == 0);
    CHECK(f.history.records.size() == whole.history.records.size() + 1);
}

TEST_CASE("a run that ended goes on where it is given more epochs") {
    const io_tests::TemporaryFolder folder;
    Fixture f, whole;
    whole.run({.folder = folder.path("whole")}, {.epochs = 4});
    const TrainingRunOptions parted{.folder = folder.path("parted"), .resume = Resume::if_there};
    f.run(parted, {.epochs = 2});
    f.run(parted, {.epochs = 4});
    CHECK(f.history.steps == 5);
    CHECK(without_seconds(history_of(folder, "parted")) == without_seconds(history_of(folder, "whole")));
    f.run(parted, {.epochs = 3});
    CHECK(contains(f.said(), "nothing to train: 10 steps are made, and .epochs is 3, 8 steps\n"));
    CHECK(f.training->parameters() == whole.training->parameters());
}

TEST_CASE(
    "the records of a run that had none begin where it is resumed, and those of other metrics have a column each") {
    const io_tests::TemporaryFolder folder;
    Fixture f;
    const auto train = [&](const Options& options) {
        Training training({.batch_size = 8, .seed = 1});
        InMemoryBatches batches(f.points.data, {.batch_size = 8, .seed = 1});
        TrainingRun run({.folder = folder.path(), .resume = Resume::if_there, .log = {.file = f.output.get()}});
        run.train(training, batches, NoTest{}, options);
        return run.history();
    };
    train({.steps = 4});
    CHECK(!folder.names().contains("history.csv"));
    const EvaluationBatches validation(f.others.data, IdentityTransform{}, 8);
    CHECK(train({.epochs = 3, .validation = validation}).records.size() == 2);
    const History last = train({.epochs = 4,
                                .validation = validation,
                                .metrics = {metrics::At<"kind", metrics::Accuracy>{}},
                                .quantity = "kind/accuracy",
                                .patience = 1});
    REQUIRE(last.records.size() == 3);
    CHECK(last.best == 2);  // the only one with the quantity
    CHECK(!last.records[0].metrics[0].larger_is_better);
    CHECK(lines_of(io_tests::read_bytes(folder.path("history.csv"))) == 4);
    CHECK(contains(io_tests::read_bytes(folder.path("history.csv")), ",kind/loss,box/loss,kind/accuracy,"));
    // Options without records keep those that there are.
    CHECK(train({.steps = 12}).records.size() == 4);
    CHECK(train({.epochs = 6, .validation = validation}).records.size() == 6);
}

TEST_CASE("with .validation, keep_best keeps the state of the best record") {
    const io_tests::TemporaryFolder folder;
    Fixture f;
    f.rate = spoiled_after(6);
    CHECK(f.run({.folder = folder.path(), .checkpoint_every = 1, .keep_best = true}, {.epochs = 4}) == 0);
    CHECK(f.training->step() == 10);
    const HistoryRecord& best = f.history.records[*f.history.best];
    const Checkpoint kept = read_checkpoint(folder.path("model-best.safetensors"), Heads::layers);
    CHECK(kept.state.step == best.step);
    CHECK(best.step < 10);
    CHECK(*kept.info.find("metric") == exact_text(-*best.validation_loss));
}

TEST_CASE("a best state that is missing or of another record is rejected before the first step") {
    const io_tests::TemporaryFolder folder;
    Fixture f;
    f.rate = spoiled_after(6);
    const Options options{.epochs = 4, .restore_best = true};
    const TrainingRunOptions on{.folder = folder.path("run"), .resume = Resume::if_there};
    f.run(on, options);
    const std::int64_t best = f.training->step();
    REQUIRE(best < 10);
    const std::string path = folder.path("run/model-best.safetensors");
    io_tests::write_bytes(path, io_tests::read_bytes(folder.path("run/model-10.safetensors")));
    CHECK(message_of<DataError>([&] { f.run(on, options); }) ==
          text(path, " is of step 10, and the best record of the run is that of step ", best,
               ": .restore_best needs its state"));
    std::remove(path.c_str());
    CHECK(message_of<DataError>([&] { f.run(on, options); }).starts_with(path));
}

TEST_CASE("Resume::anyway continues with the best state of a network that computed something else") {
    const io_tests::TemporaryFolder folder;
    Fixture f;
    f.rate = spoiled_after(6);
    TrainingRunOptions on{.folder = folder.path("run"), .resume = Resume::if_there};
    f.run(on, {.epochs = 4, .restore_best = true});
    REQUIRE(f.training->step() < 10);
    std::vector<LayerInfo> other(Heads::layers.begin(), Heads::layers.end());
    other[1].description = "Sigmoid";
    for (const char* const name : {"run/model-10.safetensors", "run/model-best.safetensors"})
        write_checkpoint(folder.path(name), other, read_checkpoint(folder.path(name), Heads::layers));
    const std::string refused = message_of<InvalidArgument>([&] { f.run(on, {.epochs = 5, .restore_best = true}); });
    CHECK(refused.find("network[2] was Sigmoid: 6 and is ReLU: 6") != std::string::npos);
    on.resume = Resume::anyway;
    CHECK(f.run(on, {.epochs = 5, .restore_best = true}) == 0);
}

TEST_CASE("options of records that do not fit a run are rejected before its folder is read") {
    const io_tests::TemporaryFolder folder;
    Fixture f;
    const auto refusal = [&](TrainingRunOptions of_run, const Options& options) {
        return message_of<InvalidArgument>([&] { f.run(std::move(of_run), options); });
    };
    CHECK(refusal({.folder = folder.path(), .max_steps = 5}, {.epochs = 1}) ==
          ".max_steps and .epochs are both given, and each says when the run ends");
    CHECK(refusal({.max_steps = 5}, {.steps = 3}) ==
          ".max_steps and .steps are both given, and each says when the run ends");
    CHECK(refusal({}, {.steps = 3, .epochs = 3}) == "a run has .steps or .epochs, not both");
    CHECK(refusal({}, {.epochs = 1, .patience = -1}) ==
          ".patience must be 0 (the run is not ended early) or more records, not -1");
    CHECK(refusal({.max_steps = 4}, {.patience = 1}) ==
          ".patience of a run by steps needs .every, the steps between two records");
    CHECK(!folder.names().contains("history.csv"));
    CHECK(f.run({.max_steps = 4}, {.every = 2, .patience = 1}) == 0);
    CHECK(f.history.records.size() == 2);
}

TEST_CASE("without a folder the records, the patience and the best state are those of fit()") {
    Fixture f;
    f.rate = spoiled_after(6);
    CHECK(f.run({}, {.epochs = 4, .restore_best = true}) == 0);
    CHECK(f.training->step() == f.history.records[*f.history.best].step);
    CHECK(contains(f.said(), "\nthe state of the best record is restored: validation_loss = "));
    CHECK(f.run({}, {.epochs = 4}, {.call = 4}) == 128 + SIGTERM);
    CHECK(f.history.records.size() == 1);  // no validation after the signal
}

TEST_CASE("the text of a history is read as it was written, and any other is an error") {
    History history;
    history.records = {
        {.epoch = 1,
         .step = 3,
         .loss = 0.1,
         .validation_loss = 0.1 + 0.2,
         .metrics = {{"accuracy", 0.75}, {"within 0,5", 1}, {"the \"other\"\nmetric\"", -1e-300}},
         .learning_rate = 0.5,
         .seconds = 1},
        {.step = 4, .loss = std::numeric_limits<double>::infinity(), .metrics = {{"later", 2}}, .seconds = 2}};
    const std::vector<HistoryRecord> read = impl::records_of_csv(history.csv());
    REQUIRE(read.size() == 2);
    History again;
    again.records = read;
    CHECK(again.csv() == history.csv());
    CHECK(read[0].metrics[2].name == "the \"other\"\nmetric\"");
    CHECK(read[1].epoch == std::nullopt);
    CHECK(read[1].metrics.size() == 1);
    const std::string header = "epoch,step,loss,validation_loss,learning_rate,seconds\n";
    CHECK(impl::records_of_csv(header).empty());
    for (const std::string& wrong :
         {std::string(), std::string("epoch\n"), header + "1,2,3", header + "1,2,3,4,5,6,7\n", header + "1,x,3,4,5,6\n",
          header + "1,2,,4,5,6\n", header + "1,2,3,4,5,6\n1,2,3,4,5,6\n", header + "1,2,3 ,4,5,6\n"}) {
        CHECK(message_of<DataError>([&] { (void)impl::records_of_csv(wrong); }) ==
              "the checkpoint's history is not the history of a run");
    }
    CheckpointInfo info;
    CHECK(!impl::read_progress(info));
    info.set("history", header);
    info.set("since_record", "1 2.5 nan 0.1 9");
    const impl::RecordProgress progress = *impl::read_progress(info);
    CHECK(progress.has_steps);
    CHECK(progress.weight == 2.5);
    CHECK(progress.sum != progress.sum);
    CHECK(progress.seconds == 9);
    info.set("since_record", "1 2.5 x");
    CHECK(message_of<DataError>([&] { (void)impl::read_progress(info); }) ==
          "the checkpoint's since_record has no number at 'x'");
}
