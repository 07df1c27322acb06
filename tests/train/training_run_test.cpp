// SPDX-License-Identifier: Apache-2.0
//
// What a run writes, prints, rejects and resumes from. (tests/examples/ has the same with processes.)
// Covers: cupola/train/training_run_options.hpp
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>
#include <cupola/train/training_run.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/data/split.hpp>
#include <cupola/data/weighted_order.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/host.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/kinds/backup.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/predict.hpp>

#include "comma_locale.hpp"
#include "io/file_support.hpp"
#include "throws_with.hpp"

namespace {

struct Net : Sequential<Input<2>, Named<"hidden", Linear<4>>, ReLU, Named<"out", Linear<2>>> {};
using Training = DataParallel<Net, CrossEntropy<2>, Sgd, ConcatMean, Host>;

const std::vector<float> points{0, 0, 0, 1, 1, 0, 1, 1, 2, 0, 0, 2, 2, 2, 1, 2};
const std::vector<std::int32_t> labels{0, 1, 1, 0, 0, 0, 0, 1};

const InMemory& data() {
    static const InMemory all(Net::input_shape, points, labels, 2);
    return all;
}

/// A run whose messages are kept.
struct Fixture {
    io_tests::TemporaryFolder folder;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> output{std::tmpfile(), &std::fclose};
    Training::Options training{.batch_size = 4, .seed = 1, .optimizer = {.learning_rate = 0.1, .momentum = 0.9}};
    /// Entries of the run's own.
    std::vector<std::pair<const char*, const char*>> entries{};

    std::string path(const std::string& below = "") const { return folder.path(below); }

    /// The exit status; what was said is in `said()`.
    template <class... Callbacks>
    int run(TrainingRunOptions options, Callbacks&&... callbacks) {
        options.log.file = output.get();
        TrainingRun run(std::move(options));
        for (const auto& [key, value] : entries) run.info().set(key, value);
        Training whole(training);
        InMemoryBatches batches(data(), {.batch_size = training.batch_size, .seed = training.seed});
        EvaluationBatches test(data(), IdentityTransform{}, 4);
        return run.train(whole, batches, test, callbacks...);
    }
    /// The output since the last call.
    std::string said() {
        std::fflush(output.get());
        std::fseek(output.get(), read_, SEEK_SET);
        std::string text(100'000, '\0');
        text.resize(std::fread(text.data(), 1, text.size(), output.get()));
        read_ += static_cast<long>(text.size());
        return text;
    }
    std::string refusal(const TrainingRunOptions& options) {
        return message_of<Error>([&] { run(options); });
    }

private:
    long read_ = 0;
};

int lines_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

/// Summaries that are counted.
struct Counted final : SummarySink {
    static inline std::vector<std::int64_t> starts, writes;
    static inline std::string folder;
    void start(std::int64_t step) override { starts.push_back(step); }
    void write(std::int64_t step, const StepSummary&) override { writes.push_back(step); }
    static std::unique_ptr<SummarySink> open(const std::string& where) {
        folder = where;
        return std::make_unique<Counted>();
    }
};

}  // namespace

TEST_CASE("a run without a folder logs, prints the accuracy, and writes no file") {
    Fixture f;
    CHECK(f.run({.max_steps = 25}) == 0);
    const std::string said = f.said();
    CHECK(lines_of(said, "examples/sec") == 3);
    CHECK(contains(said, "test accuracy = "));
    CHECK(contains(said, " (8 samples)\n"));
    CHECK_FALSE(contains(said, "moving averages"));
}

TEST_CASE("test data that the training cannot evaluate is an error before the first step") {
    Fixture f;
    Training training(f.training);
    InMemoryBatches batches(data(), {.batch_size = 4, .seed = 1});
    const auto refusal = [&](const auto& test) {
        TrainingRunOptions options{.max_steps = 25};
        options.log.file = f.output.get();
        TrainingRun run(std::move(options));
        return message_of<InvalidArgument>([&] { run.train(training, batches, test); });
    };
    CHECK(
        contains(refusal(EvaluationBatches(data(), IdentityTransform{}, 5)), "a forward pass takes 1 to 4 samples, "));
    const InMemory others(Net::input_shape, points, {2}, points);
    CHECK(contains(refusal(EvaluationBatches(others, IdentityTransform{}, 4)),
                   "the batches have a column target of float32 2"));
    const InMemory more(Net::input_shape, points, labels, 3);
    CHECK(contains(refusal(EvaluationBatches(more, IdentityTransform{}, 4)), "3 classes"));
    CHECK(training.step() == 0);
    CHECK_FALSE(contains(f.said(), "examples/sec"));
}

TEST_CASE("with moving averages their accuracy is printed too") {
    Fixture f;
    f.training.moving_average.decay = 0.5;
    f.run({.max_steps = 2});
    CHECK(lines_of(f.said(), "test accuracy with moving averages = ") == 1);
}

TEST_CASE("the header names the network, the replicas and the devices") {
    Fixture f;
    f.training.replicas = 3;
    f.training.devices = 2;
    Training training(f.training);
    TrainingRun run({.log = {.file = f.output.get()}});
    run.print_header(training);
    const std::string header = f.said(), quota = usable_processors().quota_note();
    CHECK(header.starts_with(summary<Net>(4)));
    CHECK(contains(header, '\n' + to_string(training.memory()) + '\n'));
    CHECK(header.ends_with("replicas: 3 of 4 samples per step, averaged by ConcatMean, on 2 Host devices" + quota +
                           "\n"
                           "optimiser: sgd, momentum 0.9\nlearning rate: constant 0.1\n"));
    run.print_header(training, "two machines", true);
    const std::string placed = f.said();
    CHECK(contains(placed, ", on two machines" + quota +
                               "\nplacement: hidden Linear<4>: replica 0 on host:0, replica 1 on host:1, "
                               "replica 2 on host:1\nplacement: ReLU: "));
    CHECK(contains(placed,
                   "\nplacement: averaging: ConcatMean, each device its slice of the gradient\n"
                   "placement: update: each device its copy of the parameters\noptimiser: "));
}

TEST_CASE("the header says on which devices the parts of a network are, and how long they wait") {
    using Whole = Sequential<Input<2>, Named<"hidden", Linear<4>>, Sigmoid, Named<"out", Linear<2>>>;
    struct Parts : Split<Whole, 2> {};
    struct Chosen : ChosenSplit<Whole> {};
    const DataParallel<Parts, CrossEntropy<2>, Sgd, ConcatMean, Host> training(
        {.replicas = 2, .devices = 4, .batch_size = 4, .gradient_accumulation_steps = 3});
    Fixture f;
    TrainingRun({.log = {.file = f.output.get()}}).print_header(training, {}, true);
    const std::string header = f.said();
    CHECK(header.starts_with(summary<Parts>(4)));
    CHECK(
        contains(header, '\n' + to_string(training.memory()) + '\n' + CutInfoOf<Parts>::value.step_text(3, 4) + '\n'));
    CHECK(contains(header, "placement: hidden Linear<4>: replica 0 on host:0, replica 1 on host:2\n"));
    CHECK(contains(header, "placement: out Linear<2>: replica 0 on host:1, replica 1 on host:3\n"));
    CHECK(contains(header,
                   "\nplacement: averaging: ConcatMean, the first device of each group its slice of the gradient\n"
                   "placement: update: the first device of each group its copy of the parameters\noptimiser: "));
    const DataParallel<Chosen, CrossEntropy<2>, Sgd, ConcatMean, Host> chosen(
        {.replicas = 2, .devices = 4, .batch_size = 4, .gradient_accumulation_steps = 3, .cut = {.parts = 2}});
    Fixture of_chosen;
    TrainingRun({.log = {.file = of_chosen.output.get()}}).print_header(chosen, {}, true);
    CHECK(of_chosen.said() == header);
}

TEST_CASE("the header says what is updated where replicas do not average gradients") {
    const auto placed = [](const auto& averaging) {
        using OfAveraging = DataParallel<Net, CrossEntropy<2>, Sgd, std::remove_cvref_t<decltype(averaging)>, Host>;
        const OfAveraging training(typename OfAveraging::Options{
            .replicas = 2, .batch_size = 4, .optimizer = {.learning_rate = 0.1}, .averaging = averaging});
        Fixture f;
        TrainingRun({.log = {.file = f.output.get()}}).print_header(training, {}, true);
        const std::string all = f.said();
        const std::size_t from = all.find("placement: averaging: ");
        return all.substr(from, all.find("\noptimiser: ") - from);
    };
    const std::string own = "\nplacement: update: each replica its own parameters",
                      elastic = "placement: averaging: " + Asynchronous<Elastic>{}.description();
    CHECK(placed(Asynchronous<Elastic>{}) == elastic + own);
    CHECK(placed(OneOf<ConcatMean, Asynchronous<Elastic>>(Asynchronous<Elastic>{})) == elastic + own);
    CHECK(placed(OneOf<ConcatMean, Asynchronous<Elastic>>()) ==
          "placement: averaging: ConcatMean, each device its slice of the gradient\n"
          "placement: update: each device its copy of the parameters");
    CHECK(placed(Periodic<ConcatMean>{}).ends_with(own));
    CHECK(placed(Backup{}) ==
          "placement: averaging: Backup, the first 1 gradient of a step\nplacement: update: the centre");
}

TEST_CASE("a folder has checkpoints and the log, and a resumed run ends with the bits of one that was not stopped") {
    Fixture f;
    CHECK(f.run({.folder = f.path("whole"), .max_steps = 25, .checkpoint_every = 10}) == 0);
    CHECK(f.run({.folder = f.path("parted"), .resume = Resume::if_there, .max_steps = 12, .checkpoint_every = 10}) ==
          0);
    CHECK_FALSE(contains(f.said(), "resumed"));
    for (const char* const file : {"model-10.safetensors", "model-12.safetensors"}) {
        CHECK(!io_tests::read_bytes(f.path("parted") + '/' + file).empty());
    }
    CHECK(f.run({.folder = f.path("parted"), .resume = Resume::if_there, .max_steps = 25}) == 0);
    CHECK(contains(f.said(), "resumed from " + f.path("parted/model-12.safetensors") + ": step 12 comes next\n"));
    CHECK(io_tests::read_bytes(f.path("parted/model-25.safetensors")) ==
          io_tests::read_bytes(f.path("whole/model-25.safetensors")));
    CHECK(lines_of(io_tests::read_bytes(f.path("parted/train.log")), ", loss = ") == 3);

    CHECK(f.run({.folder = f.path("parted"), .resume = Resume::yes, .max_steps = 20}) == 0);
    CHECK(contains(f.said(), "nothing to train: 25 steps are made, and .max_steps is 20\n"));
}

TEST_CASE("a checkpoint records the settings of the run and then those of its training") {
    Fixture f;
    f.entries = {{"model", "mine"}, {"seed", "a seed of its own"}};
    f.run({.folder = f.path(), .max_steps = 1});
    const CheckpointInfo info = read_checkpoint(f.path("model-1.safetensors"), Net::layers).info;
    std::vector<std::string> keys;
    for (const auto& [key, value] : info.entries()) keys.push_back(key);
    CHECK(keys == std::vector<std::string>{"model",          "seed",
                                           "batch_size",     "replicas",
                                           "accumulation",   "loss",
                                           "optimizer",      "learning_rate",
                                           "averaging",      "bn_stats",
                                           "moving_average", "precision",
                                           "convolution",    "threads_per_device",
                                           "onednn",         "isa",
                                           "data",           "order",
                                           "transform",      "images_seen",
                                           "smoothed_losses"});
    CHECK(*info.find("loss") == "cross_entropy: CrossEntropy<2>, label_smoothing 0");
    CHECK(*info.find("data") == fingerprint(data()));
    CHECK(*info.find("order") == "shuffled, seed 1");
    CHECK(*info.find("transform") == "none");
    CHECK(*info.find("seed") == "a seed of its own");
    CHECK(*info.find("optimizer") == "sgd, momentum 0.9");
    CHECK(*info.find("averaging") == "ConcatMean");
    CHECK(*info.find("precision") == "float32");
    CHECK(*info.find("convolution") == "direct");
    CHECK(*info.find("threads_per_device") == "1");
    CHECK(info.find("isa")->ends_with(std::string(" (oneDNN), ") + compiled_isa + " (Cupola)"));
}

TEST_CASE("parameter groups are part of a run's description, and a run with other groups does not continue it") {
    Fixture f;
    f.training.groups = {{.pattern = "*.bias", .rate = 2, .decay = 0}};
    f.run({.folder = f.path(), .max_steps = 1});
    const CheckpointInfo info = read_checkpoint(f.path("model-1.safetensors"), Net::layers).info;
    CHECK(*info.find("parameter_groups") == "*.bias: rate x 2, decay x 0");
    f.training.groups[0].rate = 3;
    CHECK(contains(f.refusal({.folder = f.path(), .resume = Resume::yes, .max_steps = 2}), "parameter_groups"));
}

TEST_CASE("an entry of the program that is called network is compared beside the network itself") {
    Fixture f;
    f.entries = {{"network", "wide"}};
    f.run({.folder = f.path(), .max_steps = 2});
    f.entries = {{"network", "narrow"}};
    const TrainingRunOptions on{.folder = f.path(), .resume = Resume::yes, .max_steps = 3};
    CHECK(contains(f.refusal(on), "other settings: network was wide and is narrow;"));
    f.entries = {{"network", "wide"}};
    CHECK(f.run(on) == 0);
}

TEST_CASE("a folder with checkpoints is rejected unless the run resumes from them") {
    const io_tests::TemporaryFolder folder;
    Fixture f;
    f.run({.folder = folder.path(), .max_steps = 3});
    CHECK(
        f.refusal({.folder = folder.path(), .max_steps = 3}) ==
        folder.path() +
            " has checkpoints, the newest of step 3: Resume::yes continues from it, another .folder starts a new run");
    CHECK(f.refusal({.folder = folder.path(), .names = {.folder = "--dir", .resume = "--resume"}}) ==
          folder.path() +
              " has checkpoints, the newest of step 3: --resume continues from it, another --dir starts a new run");
    CHECK(f.refusal({.folder = folder.path("none"), .resume = Resume::yes}) ==
          "the folder " + folder.path("none") + " does not exist: there is nothing to resume from");
    CHECK(io_tests::read_bytes(folder.path("none/lock")).empty());
    CHECK(f.refusal({.resume = Resume::anyway}) == "Resume::yes needs .folder, the folder to resume from");
    CHECK(f.refusal({.max_steps = -1}) == "a run must have 0 or more steps, not -1");
    io_tests::TemporaryFolder empty;
    CHECK(f.refusal({.folder = empty.path(), .resume = Resume::yes}) ==
          empty.path() + " has no checkpoint to resume from");
}

TEST_CASE("a number that is too small is rejected before a folder is made") {
    Fixture f;
    const auto refusal = [](const TrainingRunOptions& options) {
        return message_of<InvalidArgument>([&] { TrainingRun run(options); });
    };
    for (const std::string& path : {std::string(), f.path("run")}) {
        CHECK(refusal({.folder = path, .log = {.every = -1}}) ==
              ".log.every must be 0 (no lines) or more steps, not -1");
        CHECK(refusal({.folder = path, .checkpoint_every = -2}) ==
              ".checkpoint_every must be 0 (one checkpoint at the end) or more steps, not -2");
        CHECK(refusal({.folder = path, .keep_checkpoints = 0}) == ".keep_checkpoints is 1 or more, not 0");
        CHECK(refusal({.folder = path, .summary_every = -3}) ==
              ".summary_every must be 0 (no summaries) or more steps, not -3");
    }
    CHECK(f.folder.names().empty());
    CHECK(f.run({.folder = f.path("run"),
                 .max_steps = 1,
                 .log = {.every = 0},
                 .checkpoint_every = 0,
                 .keep_checkpoints = 1,
                 .summary_every = 0}) == 0);
}

TEST_CASE("damaged checkpoints are skipped and reported; if all are damaged, no run starts") {
    Fixture f;
    f.run({.folder = f.path(), .max_steps = 4, .checkpoint_every = 2});
    io_tests::write_bytes(f.path("model-4.safetensors"), "cut");
    f.said();
    CHECK(f.run({.folder = f.path(), .resume = Resume::yes, .max_steps = 4, .checkpoint_every = 0}) == 0);
    const std::string said = f.said();
    CHECK(contains(said, "warning: " + f.path("model-4.safetensors")));
    CHECK(contains(said, "resumed from " + f.path("model-2.safetensors") + ": step 2 comes next\n"));
    for (const char* const name : {"model-2.safetensors", "model-4.safetensors"}) {
        io_tests::write_bytes(f.path(name), "cut");
    }
    for (const Resume resume : {Resume::if_there, Resume::yes, Resume::anyway}) {
        CHECK(f.refusal({.folder = f.path(), .resume = resume}) ==
              f.path() + " has no valid checkpoint to resume from: 2 are damaged");
    }
}

TEST_CASE("a checkpoint of other settings is rejected with both values, or resumed from with a warning") {
    Fixture f;
    f.entries = {{"isa", "old"}};
    f.run({.folder = f.path(), .max_steps = 2});
    f.said();
    const std::string path = f.path("model-2.safetensors");
    const TrainingRunOptions on{.folder = f.path(), .resume = Resume::if_there, .max_steps = 3};
    f.entries = {{"isa", "new"}};
    CHECK(
        f.refusal(on) ==
        "continuing from " + path +
            " here would not give the same bits: isa was old and is new; Resume::anyway continues without that guarantee");
    f.training.seed = 7;
    CHECK(
        message_of<DataError>([&] { f.run(on); }) ==
        path +
            " is of a run with other settings: seed was 1 and is 7; order was shuffled, seed 1 and is shuffled, seed 7; .max_steps, .epochs and the options of logs, "
            "summaries and checkpoints may change, and Resume::anyway continues with the changed settings");
    TrainingRunOptions anyway = on;
    anyway.resume = Resume::anyway;
    CHECK(f.run(anyway) == 0);
    CHECK(contains(f.said(), "warning: continuing from " + path +
                                 " with other settings: seed was 1 and is 7; order was shuffled, seed 1 and is "
                                 "shuffled, seed 7; isa was old and is new\n"));
}

namespace {

/// The last layer but one of a network of the same parameters.
template <class... Middle>
struct NetOf : Sequential<Input<2>, Named<"hidden", Linear<4>>, Middle..., Named<"out", Linear<2>>> {};

/// One step of a training in a folder.
template <class OfNet = Net, class Loss = CrossEntropy<2>, class Batches>
std::string trained(Resume resume, const std::string& folder, Batches&& batches, const Loss& loss = {}) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::tmpfile(), &std::fclose);
    TrainingRun run({.folder = folder,
                     .resume = resume,
                     .max_steps = 3,
                     .log = {.every = 0, .file = output.get()},
                     .keep_best = true});
    DataParallel<OfNet, Loss, Sgd, ConcatMean, Host> training(
        {.batch_size = 4, .seed = 1, .loss = {loss}, .optimizer = {.learning_rate = 0.1, .momentum = 0.9}});
    const std::string error =
        message_of<Error>([&] { run.train(training, batches, EvaluationBatches(data(), IdentityTransform{}, 4)); });
    if (error != "(no exception)") return error;
    std::rewind(output.get());
    std::string said(10'000, '\0');
    said.resize(std::fread(said.data(), 1, said.size(), output.get()));
    return said;
}

}  // namespace

TEST_CASE("a run with another network, loss, data or order does not continue another, whatever its parameters are") {
    const io_tests::TemporaryFolder folder;
    const std::string run = folder.path("run"), path = folder.path("run/model-3.safetensors");
    const auto batches = [](std::uint64_t seed) { return InMemoryBatches(data(), {.batch_size = 4, .seed = seed}); };
    trained(Resume::no, run, batches(1));
    CHECK(contains(trained(Resume::yes, run, batches(1)), "resumed from " + path));
    const auto difference = [&](std::string refusal) {
        const std::string begin = path + " is of a run with other settings: ";
        REQUIRE(refusal.starts_with(begin));
        refusal.erase(0, begin.size());
        return refusal.substr(0, refusal.find("; .max_steps"));
    };
    CHECK(difference(trained<NetOf<Sigmoid>>(Resume::yes, run, batches(1))) ==
          "network[2] was ReLU: 4 and is Sigmoid: 4");
    CHECK(difference(trained<NetOf<LeakyReLU<0.3>>>(Resume::yes, run, batches(1))) ==
          "network[2] was ReLU: 4 and is LeakyReLU<0.3>: 4");
    CHECK(difference(trained<NetOf<ReLU, Dropout<0.5>>>(Resume::yes, run, batches(1))) ==
          "network[3] was Linear 2: 2 and is Dropout 0.5: 4 (in training)");
    CHECK(difference(trained(Resume::yes, run, batches(1), CrossEntropy<2>{.label_smoothing = 0.25F})) ==
          "loss was cross_entropy: CrossEntropy<2>, label_smoothing 0 and is cross_entropy: CrossEntropy<2>, "
          "label_smoothing 0.25");
    using Decayed = LossCollection<CrossEntropy<2>, WeightDecay<1e-7, "hidden">>;
    CHECK(difference(trained<Net, Decayed>(Resume::yes, run, batches(1))) ==
          "loss was cross_entropy: CrossEntropy<2>, label_smoothing 0 and is cross_entropy: CrossEntropy<2>, "
          "label_smoothing 0; WeightDecay<0>: 1e-07 of hidden");
    CHECK(difference(trained(Resume::yes, run, batches(2))) == "order was shuffled, seed 1 and is shuffled, seed 2");
    std::vector<std::int32_t> changed = labels;
    changed.back() = 0;
    const InMemory other(Net::input_shape, points, changed, 2);
    const std::string of_data =
        difference(trained(Resume::yes, run, InMemoryBatches(other, {.batch_size = 4, .seed = 1})));
    CHECK(of_data == "data was " + fingerprint(data()) + " and is " + fingerprint(other));
    const std::vector<double> weights{1, 1, 1, 1, 1, 1, 1, 2};
    const std::string of_order =
        difference(trained(Resume::yes, run,
                           Prefetch(TrainingBatches(data(), IdentityTransform{}, {.batch_size = 4, .seed = 1},
                                                    WeightedOrder(weights, 1)))));
    CHECK(of_order.starts_with("order was shuffled, seed 1 and is by weights, hash "));

    const std::string anyway = trained<NetOf<Sigmoid>>(Resume::anyway, run, batches(2));
    CHECK(contains(anyway, "warning: continuing from " + path +
                               " with other settings: order was shuffled, seed 1 and is shuffled, seed 2; "
                               "network[2] was ReLU: 4 and is Sigmoid: 4\n"));
    CHECK(contains(anyway, "resumed from " + path));
}

TEST_CASE("data that a function makes are compared by the name of its type and their number") {
    struct Sums {
        void operator()(std::int64_t, const RandomStream& random, const BatchSpan& sample) const {
            const auto words = random.words(0);
            sample.inputs()[0] = uniform(words[0]);
            sample.inputs()[1] = uniform(words[1]);
            sample.labels()[0] = sample.inputs()[0] > sample.inputs()[1] ? 1 : 0;
        }
    };
    struct Others : Sums {};
    const Columns columns{{"input", ElementType::float32, {2}}, {"target", ElementType::int32, {1}}};
    const auto made = [&](auto function, std::int64_t samples) {
        return Prefetch(Generator(columns, function, {.batch_size = 4, .seed = 1}, samples));
    };
    const io_tests::TemporaryFolder folder;
    trained(Resume::no, folder.path("run"), made(Sums{}, 8));
    CHECK(contains(trained(Resume::yes, folder.path("run"), made(Sums{}, 8)), "resumed from"));
    CHECK(contains(trained(Resume::yes, folder.path("run"), made(Others{}, 8)),
                   "data was Sums, input float32 2, target int32 1, 8 samples and is Others, input"));
    CHECK(contains(trained(Resume::yes, folder.path("run"), made(Sums{}, 0)),
                   ", 8 samples and is Sums, input float32 2, target int32 1, endless; order was shuffled, seed 1 and "
                   "is by number, seed 1"));
    const auto lambda = [](std::int64_t i, const RandomStream& random, const BatchSpan& sample) {
        Sums{}(i, random, sample);
    };
    CHECK(contains(trained(Resume::yes, folder.path("run"), made(lambda, 8)), " and is a function, input float32 2"));
}

TEST_CASE("a checkpoint that is older than these entries is resumed from with one line that names them") {
    Fixture f;
    const std::string path = f.path("model-2.safetensors");
    io_tests::write_bytes(
        path, io_tests::read_bytes(std::string(CUPOLA_SOURCE_DIR) + "/tests/train/data/model-2-of-0.1.safetensors"));
    for (const std::string_view property : {"convolution", "threads_per_device", "onednn", "isa"})
        f.entries.emplace_back(property.data(), "any");
    const TrainingRunOptions options{.folder = f.path(), .resume = Resume::yes, .max_steps = 4};
    CHECK(f.run(options) == 0);
    const std::string said = f.said();
    CHECK(contains(said, "warning: " + path +
                             " lacks entries that a run has now, and that are not compared: loss, data, order, "
                             "transform, network\nresumed from " +
                             path + ": step 2 comes next\n"));
    CHECK(f.run(options) == 0);
    CHECK_FALSE(contains(f.said(), "warning"));  // what it writes has them
    // A setting that the old file has is compared.
    io_tests::write_bytes(f.path("model-4.safetensors"), "");
    f.training.optimizer.momentum = 0.5;
    CHECK(contains(f.refusal(options), "optimizer was sgd, momentum 0.9 and is sgd, momentum 0.5"));
}

namespace {

/// Data with names of its classes.
struct NamedClasses {
    std::vector<std::string> names;

    static std::string_view name() { return "named"; }
    static std::int64_t size() { return data().size(); }
    static Shape sample_shape() { return data().sample_shape(); }
    static std::span<const float> sample(std::int64_t i) { return data().sample(i); }
    static std::int32_t label(std::int64_t i) { return labels[static_cast<std::size_t>(i)]; }
    [[nodiscard]] std::int64_t class_count() const { return static_cast<std::int64_t>(names.size()); }
    [[nodiscard]] const std::vector<std::string>& classes() const { return names; }
};

}  // namespace

TEST_CASE("the names of the classes are kept with the weights, and a run with others does not continue") {
    const io_tests::TemporaryFolder folder;
    const auto batches = [](const NamedClasses& named) {
        return Prefetch(TrainingBatches(named, IdentityTransform{}, {.batch_size = 4, .seed = 1}));
    };
    const NamedClasses named{{"1", "10"}}, others{{"1", "2"}}, strange{{"a\nb\\", "\xFF\"x"}};
    trained(Resume::no, folder.path("run"), batches(named));
    const std::string path = folder.path("run/model-3.safetensors");
    CHECK(Predictor<Net>(path).classes() == named.names);
    CHECK(Predictor<Net>(path).classes("other").empty());
    CHECK(contains(trained(Resume::yes, folder.path("run"), batches(others)),
                   "other settings: classes[1] was 10 and is 2; "));
    trained(Resume::no, folder.path("strange"), batches(strange));
    CHECK(Predictor<Net>(folder.path("strange/model-3.safetensors")).classes() == strange.names);
    // A part of a data set has the names of the whole.
    const auto parts = split(named, {.validation = 0.5, .seed = 1});
    trained(Resume::no, folder.path("part"),
            Prefetch(TrainingBatches(parts.training, IdentityTransform{}, {.batch_size = 4, .seed = 1})));
    CHECK(Predictor<Net>(folder.path("part/model-3.safetensors")).classes() == named.names);
    trained(Resume::no, folder.path("none"), InMemoryBatches(data(), {.batch_size = 4, .seed = 1}));
    CHECK(Predictor<Net>(folder.path("none/model-3.safetensors")).classes().empty());

    TrainingRun run({.max_steps = 1});
    Training training({.batch_size = 4});
    CHECK(message_of<InvalidArgument>([&] {
              run.train(training, batches(named), EvaluationBatches(others, IdentityTransform{}, 4));
          }) == "the test data named have other classes than the training data named: classes[1] was 10 and is 2");
}

TEST_CASE("a checkpoint that cannot be resumed even so is rejected with its name") {
    Fixture f;
    f.run({.folder = f.path(), .max_steps = 2});
    f.training.moving_average.decay = 0.9;
    CHECK(message_of<DataError>([&] {
              f.run({.folder = f.path(), .resume = Resume::anyway});
          }).starts_with(f.path("model-2.safetensors") + " cannot be resumed from: "));
}

TEST_CASE("the best checkpoint is kept and compared with, and never that of another run") {
    Fixture f;
    const TrainingRunOptions best{.folder = f.path("run"), .max_steps = 2, .keep_best = true};
    CHECK(f.run(best) == 0);
    CHECK(!io_tests::read_bytes(f.path("run/model-best.safetensors")).empty());
    CHECK(read_checkpoint(f.path("run/model-best.safetensors"), Net::layers).info.find("metric") != nullptr);

    f.training.seed = 2;
    TrainingRunOptions other{.folder = f.path("other"), .max_steps = 2};
    f.run(other);
    io_tests::write_bytes(f.path("other/model-best.safetensors"),
                          io_tests::read_bytes(f.path("run/model-best.safetensors")));
    other.keep_best = true;
    other.resume = Resume::yes;
    other.max_steps = 3;
    CHECK(
        message_of<DataError>([&] { f.run(other); }) ==
        f.path("other/model-best.safetensors") +
            " is the best checkpoint of a run with other settings: seed was 1 and is 2; order was shuffled, seed 1 and is "
            "shuffled, seed 2; rename it, or "
            "Resume::anyway compares with it and replaces it by a better one");
    std::remove(f.path("run/model-2.safetensors").c_str());
    CHECK(f.refusal(best) == f.path("run/model-best.safetensors") +
                                 " is the best checkpoint of another run: rename it, or start in another .folder");
    CHECK(f.refusal({.keep_best = true}) == ".keep_best needs .folder, the folder to keep it in");
    f.run({.folder = f.path("no test"), .max_steps = 2});
    TrainingRun run({.folder = f.path("no test"), .resume = Resume::yes, .keep_best = true});
    Training training(f.training);
    InMemoryBatches batches(data(), {.batch_size = 4, .seed = 2});
    CHECK(message_of<InvalidArgument>([&] { run.train(training, batches, NoTest{}); }) ==
          ".keep_best needs test data or a validation: the best checkpoint is the one with the best result on them");
    CHECK(training.step() == 0);  // nothing was restored
}

TEST_CASE("entries that no checkpoint can have are an error before the first step, and so is a best one that is gone") {
    Fixture f;
    int steps = 0;
    struct Counts {
        int* steps;
        void on_step(const StepReport&, Run&) { ++*steps; }
    };
    const auto refusal = [&](const char* key, const char* value) {
        f.entries = {{key, value}};
        return message_of<Error>([&] { f.run({.folder = f.path(key), .max_steps = 2}, Counts{&steps}); });
    };
    const std::string own = ", which checkpoints have of their own";
    CHECK(refusal("format", "png") == "the info of a run has the entry format" + own);
    CHECK(refusal("crc32c", "1") == "the info of a run has the entry crc32c" + own);
    CHECK(refusal("cupola.note", "x") == "the info of a run has the entry cupola.note" + own);
    CHECK(refusal("where",
                  "donn\xE9"
                  "es") == "the entry where of the info of a run is not UTF-8: donn?es");
    CHECK(steps == 0);
    f.entries = {};
    f.run({.folder = f.path("run"), .max_steps = 2, .keep_best = true});
    std::filesystem::remove(f.path("run/model-best.safetensors"));
    std::filesystem::create_symlink(f.path("gone"), f.path("run/model-best.safetensors"));
    CHECK(contains(f.refusal({.folder = f.path("run"), .resume = Resume::yes, .max_steps = 4, .keep_best = true}),
                   f.path("run/model-best.safetensors") + " "));
}

TEST_CASE("train.log has the header, the messages and the results too, and a later run appends its own") {
    Fixture f;
    std::string log;
    for (const std::int64_t steps : {3, 5}) {
        Training training(f.training);
        TrainingRun run({.folder = f.path("run"),
                         .resume = Resume::if_there,
                         .max_steps = steps,
                         .log = {.every = 0, .file = f.output.get()}});
        run.print_header(training);
        CHECK(io_tests::read_bytes(f.path("run/train.log")) == log);  // a run that ends here leaves nothing there
        InMemoryBatches batches(data(), {.batch_size = 4, .seed = 1});
        CHECK(run.train(training, batches, EvaluationBatches(data(), IdentityTransform{}, 4)) == 0);
        const std::string said = f.said();
        CHECK(said.starts_with(summary<Net>(4)));
        CHECK(lines_of(said, "resumed from ") == (steps == 5));
        CHECK(contains(said, "\ntest accuracy = "));
        log += said;
        CHECK(io_tests::read_bytes(f.path("run/train.log")) == log);
    }
}

TEST_CASE("a process that does not write resumes from the folder and leaves it unchanged") {
    Fixture f;
    f.run({.folder = f.path("run"), .max_steps = 3});
    const auto before = f.folder.names();
    const std::string log = io_tests::read_bytes(f.path("run/train.log"));
    f.said();
    CHECK(f.run({.folder = f.path("run"), .resume = Resume::yes, .writes = false, .max_steps = 5}) == 0);
    CHECK(contains(f.said(), "step 3 comes next"));
    CHECK(io_tests::read_bytes(f.path("run/train.log")) == log);
    CHECK(io_tests::read_bytes(f.path("run/model-5.safetensors")).empty());
    CHECK(f.run({.folder = f.path("none"), .writes = false, .max_steps = 1}) == 0);
    CHECK(f.folder.names() == before);
}

TEST_CASE("two runs do not share a folder") {
    const io_tests::TemporaryFolder folder;
    const TrainingRun first({.folder = folder.path()});
    CHECK(contains(
        message_of<DataError>([&] { TrainingRun second({.folder = folder.path(), .resume = Resume::if_there}); }),
        "is in use by another training"));
}

TEST_CASE("a signal ends the training after the step, with a checkpoint, and is the exit status") {
    struct RaisesAt {
        int signal;
        std::int64_t step;
        void on_step(const StepReport& report, Run&) const {
            if (report.step == step) std::raise(signal);
        }
    };
    Fixture f;
    CHECK(f.run({.folder = f.path(), .max_steps = 9}, RaisesAt{SIGTERM, 4}) == 128 + SIGTERM);
    const std::string said = f.said();
    CHECK(said.ends_with("stopped by signal 15 after 5 steps; Resume::yes continues from " + f.path() + '\n'));
    CHECK_FALSE(contains(said, "accuracy"));
    CHECK(!io_tests::read_bytes(f.path("model-5.safetensors")).empty());
    CHECK(f.run({.max_steps = 9}, RaisesAt{SIGINT, 0}) == 128 + SIGINT);
    CHECK(f.said().ends_with("stopped by signal 2 after 1 step; without .folder nothing was kept\n"));
}

TEST_CASE(
    "summaries are written to the sink that `events` opens, every N steps; without it, or every 0 steps, there are none") {
    Fixture f;
    Counted::starts.clear();
    Counted::writes.clear();
    f.run({.folder = f.path("a"), .max_steps = 5, .events = Counted::open, .summary_every = 2});
    CHECK(Counted::folder == f.path("a"));
    CHECK(Counted::starts == std::vector<std::int64_t>{0});
    CHECK(Counted::writes == std::vector<std::int64_t>{0, 0, 2, 4});  // hyper-parameters and network first
    CHECK(contains(f.said(), "\nsummaries took "));
    f.run({.folder = f.path("b"), .max_steps = 5, .events = Counted::open, .summary_every = 0});
    f.run({.folder = f.path("c"), .max_steps = 5});
    f.run({.max_steps = 5, .events = Counted::open});
    CHECK(Counted::writes.size() == 4);
    CHECK_FALSE(contains(f.said(), "summaries took"));
}

TEST_CASE("the smoothed losses of log and summaries continue in a resumed run") {
    Fixture f;
    const LogOptions parts{.every = 1, .parts = true};
    f.run({.folder = f.path("whole"), .max_steps = 4, .log = parts});
    f.run({.folder = f.path("parted"), .max_steps = 2, .log = parts});
    f.run({.folder = f.path("parted"), .resume = Resume::yes, .max_steps = 4, .log = parts});
    const auto smoothed = [&](const char* run) {
        const std::string log = io_tests::read_bytes(f.path(run) + "/train.log");
        return log.substr(log.rfind("(smoothed "));
    };
    CHECK(smoothed("whole") == smoothed("parted"));
}

TEST_CASE("with json every line is a JSON object") {
    Fixture f;
    Training training(f.training);
    TrainingRun run({.max_steps = 3, .log = {.every = 1, .file = f.output.get(), .json = true}});
    run.print_header(training);
    InMemoryBatches batches(data(), {.batch_size = 4, .seed = 1});
    CHECK(run.train(training, batches, EvaluationBatches(data(), IdentityTransform{}, 4)) == 0);
    const std::string said = f.said();
    std::size_t lines = 0;
    for (std::size_t at = 0; at < said.size(); at = said.find('\n', at) + 1, ++lines) {
        CHECK(said[at] == '{');
        CHECK(said[said.find('\n', at) - 1] == '}');
    }
    CHECK(lines == 5 + 3 + 1);
    CHECK(contains(said, R"({"message":"optimiser: sgd, momentum 0.9"})"));
    CHECK(contains(said, R"(,"step":3,"correct":)"));
    CHECK(contains(said, R"(,"samples":8,"weights":"trained parameters"})"));
}

TEST_CASE("a loss that counts no predictions is the result that is printed, and the best checkpoint has the lowest") {
    Fixture f;
    using Regression = DataParallel<Net, MeanSquaredError, Sgd, ConcatMean, Host>;
    const std::vector<float> targets(16, 0.5F);
    const InMemory numbers(Net::input_shape, points, Net::output_shape, targets);
    const auto trained = [&](const char* name, bool json) {
        Regression training({.batch_size = 4, .seed = 1, .optimizer = {.learning_rate = 0.1}});
        TrainingRunOptions options{.folder = f.path(name), .max_steps = 4, .keep_best = true};
        options.checkpoint_every = 1;
        options.log = {.every = 1, .file = f.output.get(), .json = json};
        TrainingRun run(options);
        InMemoryBatches batches(numbers, {.batch_size = 4, .seed = 1});
        EvaluationBatches test(numbers, IdentityTransform{}, 4);
        CHECK(run.train(training, batches, test) == 0);
        return evaluate(training, test).loss;
    };
    const double loss = trained("text", false);
    CHECK(contains(f.said(), text("\ntest loss = ", loss_text(loss), " (8 samples)\n")));
    trained("json", true);
    CHECK(contains(f.said(),
                   text(R"({"loss":)", exact_text(loss), R"(,"step":4,"samples":8,"weights":"trained parameters"})")));
    const Checkpoint kept = read_checkpoint(f.path("text/model-best.safetensors"), Net::layers);
    const std::string* const best = kept.info.find("metric");
    REQUIRE(best != nullptr);
    CHECK(std::stod(*best) < 0);
    CHECK(std::stod(*best) >= -loss);
}

TEST_CASE("a network with several outputs: the result has the loss of each, and the best checkpoint the lowest loss") {
    using Heads = Sequential<Input<2>, Linear<4>, ReLU, Keep<"body">, Linear<3>, Output<"kind">, From<"body">,
                             Linear<2>, Output<"box">>;
    using HeadLosses = Losses<At<"kind", CrossEntropy<3>>, At<"box", Weighted<0.5, MeanSquaredError>>>;
    Fixture f;
    const std::vector<float> samples{0, 1, 1, 0, 0.5F, 0.25F, 1, 1}, boxes(8, 0.5F);
    const std::vector<std::int32_t> kinds{0, 2, 1, 0};
    const InMemory data({2}, samples, {{"kind", {1}, kinds}, {"box", {2}, boxes}});
    const auto trained = [&](const char* name, bool json) {
        DataParallel<Heads, HeadLosses, Sgd, ConcatMean, Host> training(
            {.batch_size = 2, .seed = 1, .optimizer = {.learning_rate = 0.1}});
        TrainingRunOptions options{.folder = f.path(name), .max_steps = 4, .keep_best = true};
        options.checkpoint_every = 1;
        options.log = {.every = 1, .file = f.output.get(), .json = json};
        TrainingRun run(options);
        InMemoryBatches batches(data, {.batch_size = 2, .seed = 1});
        EvaluationBatches test(data, IdentityTransform{}, 2);
        CHECK(run.train(training, batches, test) == 0);
        return evaluate(training, test);
    };
    const Evaluation result = trained("text", false);
    const std::string kind = loss_text(result.losses[0].loss), box = loss_text(result.losses[1].loss);
    char accuracy[16];
    std::snprintf(accuracy, sizeof accuracy, "%.3f", result.accuracy());
    CHECK(contains(f.said(), text("\ntest loss = ", loss_text(result.loss), " (4 samples): kind ", kind, " (accuracy ",
                                  accuracy, "), box ", box, '\n')));
    trained("json", true);
    const std::string json = f.said();
    CHECK(contains(json, text(R"({"loss":)", exact_text(result.loss), R"(,"outputs":{"kind":{"loss":)",
                              exact_text(result.losses[0].loss), R"(,"precision":)")));
    CHECK(contains(json, text(R"(},"box":{"loss":)", exact_text(result.losses[1].loss),
                              R"(}},"step":4,"samples":4,"weights":"trained parameters"})")));
    const Checkpoint kept = read_checkpoint(f.path("text/model-best.safetensors"), Heads::layers);
    REQUIRE(kept.info.find("metric") != nullptr);
    CHECK(std::stod(*kept.info.find("metric")) < 0);
    // The parts of the loss and of the log's lines have the names of the outputs.
    CHECK(contains(json, R"("parts":{"kind":{"raw":)"));
}

TEST_CASE("the lines of a run have whole names, which JSON escapes, and the numbers of the C locale") {
    const std::string name(200, 'n');
    const Evaluation result{
        .samples = 4,
        .loss = 0.75,
        .losses = {{.name = name + '"', .loss = 0.5, .correct = 3, .predictions = 4}, {.name = "box", .loss = 0.25}}};
    const CommaLocale comma;
    CHECK(impl::losses_of_outputs(false, result) == ": " + name + "\" 0.500 (accuracy 0.750), box 0.250");
    CHECK(impl::losses_of_outputs(true, result) ==
          R"("outputs":{")" + name + R"(\"":{"loss":0.5,"precision":0.750000},"box":{"loss":0.25}},)");
    CHECK(impl::cost_of_summaries(0.5, 8) == "summaries took 6.25 % of the training's 8.0 s");
}

TEST_CASE("a test loss that is not finite is an error, not an accuracy") {
    CHECK(message_of<DataError>([] {
              static_cast<void>(impl::result_line(false, 1,
                                                  {.samples = 1, .loss = std::numeric_limits<double>::infinity()},
                                                  Weights::trained, "images"));
          }) == "the loss on the test images is inf, with trained parameters: the training has diverged");
}

TEST_CASE("a run goes on over steps without labels, and resumes after an epoch that had no others") {
    using Ignoring = DataParallel<Net, WeightedCrossEntropy<2>, Sgd, ConcatMean, Host>;
    const io_tests::TemporaryFolder folder;
    const std::vector<std::int32_t> ignored(8, 1);
    const InMemory unlabelled(Net::input_shape, points, ignored, 2);
    // The epochs 1 and 2 have no labels; each run is of one more epoch.
    for (int epochs = 1; epochs <= 3; ++epochs) {
        CAPTURE(epochs);
        Fixture f;
        Ignoring training({.batch_size = 4,
                           .seed = 1,
                           .loss = {.data = {.ignored_label = 1}},
                           .optimizer = {.learning_rate = 0.1, .momentum = 0.9},
                           .skip_steps_without_labels = true});
        TrainingRunOptions options{.folder = folder.path(), .resume = epochs == 1 ? Resume::no : Resume::anyway};
        options.log.every = 1;
        options.log.json = true;
        options.log.file = f.output.get();
        TrainingRun run(options);
        InMemoryBatches batches(epochs < 3 ? unlabelled : data(), {.batch_size = 4, .seed = 1});
        EvaluationBatches test(data(), IdentityTransform{}, 4);
        CHECK(run.train(training, batches, test, {.epochs = epochs}) == 0);
        CAPTURE(f.said());
        CHECK(training.step() == 2 * epochs);
        const std::string history = io_tests::read_bytes(folder.path("history.csv"));
        CAPTURE(history);
        // No mean of the loss where nothing was counted, and one where labels are.
        CHECK(contains(history, "\n1,2,nan,"));
        CHECK(contains(history, "\n2,4,nan,") == (epochs >= 2));
        CHECK(contains(history, "\n3,6,1.") == (epochs == 3));
    }
}
