// SPDX-License-Identifier: Apache-2.0
//
// Trainings on each source of data: a table from a file, parts of a data set, standardised inputs, samples by weight, samples
// that a function makes. A run that is resumed from a checkpoint has the same bits, and the constants of its inputs.
#include <cupola/data/csv.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/data/split.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/data/standardized_targets.hpp>
#include <cupola/data/weighted_order.hpp>
#include <cupola/loss/weighted_cross_entropy.hpp>

#include "../test.hpp"

#include <unistd.h>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/metrics.hpp>
#include <cupola/predict.hpp>
#include <cupola/train/training_run.hpp>

#include "io/file_support.hpp"
#include "throws_with.hpp"

namespace {

struct Net : Sequential<Input<2>, Linear<8>, ReLU, Linear<2>> {};
using Training = DataParallel<Net, CrossEntropy<2>, Sgd, ConcatMean, Host>;

/// A file of 120 rows: large numbers whose quotient decides; every fifth row is "hot".
std::string rows(double unit = 1) {
    std::string lines = "mass,volume,kind\n";
    for (std::uint64_t i = 0; i < 120; ++i) {
        const auto words = RandomStream(3, RngDomain::user, 0, i).words(0);
        const bool hot = i % 5 == 0;
        lines += text((1000 + 50 * static_cast<double>(uniform(words[0])) + (hot ? 40 : 0)) * unit, ',',
                      7 + static_cast<double>(uniform(words[1])), ',', hot ? "hot" : "cold", '\n');
    }
    return lines;
}

/// Trains on a table with everything between the file and the step, and returns the state.
struct Runs {
    io_tests::TemporaryFolder folder;
    std::string table = folder.path() + "/table.csv";
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> silence{std::tmpfile(), &std::fclose};

    explicit Runs(const std::string& contents = rows()) { write(contents); }
    void write(const std::string& contents) const {
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(table.c_str(), "wb"), &std::fclose);
        std::fwrite(contents.data(), 1, contents.size(), file.get());
    }

    TrainingState state(const std::string& run_folder, std::int64_t steps, int devices, int workers) {
        const Table all = read_csv(table, {.label = "kind"});
        const auto [part, held_back] = split(all, {.validation = 0.25, .seed = 4, .stratified = true});
        const Standardization constants = Standardization::of(part);
        Prefetch batches(TrainingBatches(part, constants, {.batch_size = 6, .replicas = 2, .seed = 4},
                                         WeightedOrder(balanced_weights(part), 4)),
                         {.workers = workers});
        EvaluationBatches validation(held_back, constants, 6);
        TrainingRun run({.folder = folder.path() + "/" + run_folder,
                         .resume = Resume::if_there,
                         .max_steps = steps,
                         .log = {.every = 0, .file = silence.get()},
                         .checkpoint_every = 50});
        constants.store_in(run.info());
        Training training({.replicas = 2,
                           .devices = devices,
                           .device = {.threads = 1},
                           .batch_size = 6,
                           .seed = 4,
                           .optimizer = {.learning_rate = 0.1, .momentum = 0.9}});
        status = run.train(training, batches, validation);
        accuracy = evaluate(training, validation).accuracy();
        return training.state();
    }

    int status = -1;
    double accuracy = 0;
};

/// Whether a point is above the diagonal.
struct Halves {
    void operator()(std::int64_t, const RandomStream& random, const BatchSpan& sample) const {
        const auto words = random.words(0);
        float* const point = sample.inputs();
        point[0] = uniform(words[0]);
        point[1] = uniform(words[1]);
        *sample.labels() = point[1] > point[0] ? 1 : 0;
    }
};

Generator<Halves> halves(std::int64_t batch_size, int replicas, std::uint64_t seed, std::int64_t epoch = 0) {
    return {{{"input", ElementType::float32, {2}}, {"target", ElementType::int32, {1}}},
            Halves{},
            {.batch_size = batch_size, .replicas = replicas, .seed = seed},
            epoch};
}

}  // namespace

TEST_CASE("a training on a table learns, and resumed it has the bits of one that was not stopped") {
    Runs runs;
    const TrainingState whole = runs.state("whole", 200, 1, 0);
    CHECK(runs.status == 0);
    CHECK(runs.accuracy > 0.85);
    runs.state("parts", 70, 1, 0);
    const TrainingState resumed = runs.state("parts", 200, 2, 2);
    CHECK(resumed.step == whole.step);
    CHECK(resumed.parameters == whole.parameters);
    REQUIRE(resumed.optimizer.size() == 1);
    CHECK(resumed.optimizer[0].values == whole.optimizer[0].values);
}

TEST_CASE("a checkpoint has the constants of the inputs, for a program that predicts") {
    Runs runs;
    runs.state("run", 150, 1, 0);
    const Table all = read_csv(runs.table, {.label = "kind"});
    const Standardization constants =
        Standardization::of(split(all, {.validation = 0.25, .seed = 4, .stratified = true}).training);
    const std::string path = list_checkpoints(runs.folder.path() + "/run").front().path;
    const Checkpoint checkpoint = read_checkpoint(path, Net::layers);
    CHECK(Standardization::stored_in(checkpoint.info, path) == constants);
    const Predictor<Net> predictor(checkpoint, path);
    std::vector<float> hot{1090, 7.5F}, cold{1000, 7.5F}, logits(2);
    Standardization::stored_in(checkpoint.info, path).apply(hot);
    predictor.predict(hot, logits);
    CHECK(all.classes()[logits[1] > logits[0] ? 1 : 0] == "hot");
    constants.apply(cold);
    predictor.predict(cold, logits);
    CHECK(all.classes()[logits[1] > logits[0] ? 1 : 0] == "cold");
}

TEST_CASE("a run that is resumed with other constants is rejected, and the message has both") {
    Runs runs;
    runs.state("run", 20, 1, 0);
    runs.write(rows(0.001));
    const std::string message = message_of<DataError>([&] { runs.state("run", 40, 1, 0); });
    CHECK(contains(message, "is of a run with other settings: standardization.input.means was 10"));
    CHECK(contains(message, " and is 1.0"));
    CHECK(contains(message, "standardization.input.deviations was "));
}

TEST_CASE("a regression on a table predicts in the units of the file, from its checkpoint") {
    std::string lines = "area,rooms,price\n";
    for (std::uint64_t i = 0; i < 100; ++i) {
        const auto words = RandomStream(6, RngDomain::user, 0, i).words(0);
        const double area = 50 + 100 * static_cast<double>(uniform(words[0]));
        const auto rooms = static_cast<double>(2 + words[1] % 4);
        lines += text(area, ',', rooms, ',', exact_text(3000 * area + 20'000 * rooms), '\n');
    }
    const Runs runs(lines);
    struct Price : Sequential<Input<2>, Linear<1>> {};
    const Table all = read_csv(runs.table, {.targets = {"price"}});
    const auto [houses, held_back] = split(all, {.validation = 0.2, .seed = 1});
    const Standardization inputs = Standardization::of(houses), prices = Standardization::of_targets(houses);
    const StandardizedTargets part(houses, prices), rest(held_back, prices);
    Prefetch batches(TrainingBatches(part, inputs, {.batch_size = 16, .seed = 1}));
    EvaluationBatches validation(rest, inputs, 16);
    DataParallel<Price, MeanSquaredError, Sgd, ConcatMean, Host> training(
        {.batch_size = 16, .seed = 1, .optimizer = {.learning_rate = 0.1, .momentum = 0.9}});
    const std::string folder = runs.folder.path() + "/run";
    TrainingRun run({.folder = folder, .max_steps = 200, .log = {.every = 0, .file = runs.silence.get()}});
    inputs.store_in(run.info());
    prices.store_in(run.info(), "target");
    CHECK(run.train(training, batches, NoTest{}) == 0);
    CHECK(evaluate(training, validation).loss < 1e-4);
    const std::string path = list_checkpoints(folder).front().path;
    const Checkpoint checkpoint = read_checkpoint(path, Price::layers);
    std::vector<float> house{100, 3}, price(1);
    Standardization::stored_in(checkpoint.info, path).apply(house);
    Predictor<Price>(checkpoint, path).predict(house, price);
    Standardization::stored_in(checkpoint.info, path, "target").undo(price);
    CHECK(price[0] == doctest::Approx(360'000).epsilon(0.01));
}

TEST_CASE("a table with a class and numbers trains a network with two outputs") {
    std::string lines = "a,b,larger,sum,difference\n";
    for (std::uint64_t i = 0; i < 200; ++i) {
        const auto words = RandomStream(8, RngDomain::user, 0, i).words(0);
        const float a = uniform(words[0]), b = uniform(words[1]);
        lines += text(a, ',', b, ',', a > b ? "a" : "b", ',', a + b, ',', a - b, '\n');
    }
    const Runs runs(lines);
    struct Heads : Sequential<Input<2>, Linear<32>, ReLU, Keep<"features">, Linear<2>, Output<"larger">,
                              From<"features">, Linear<2>, Output<"both">> {};
    const Table all =
        read_csv(runs.table, {.named_targets = {{.name = "larger", .columns = {"larger"}, .classes = true},
                                                {.name = "both", .columns = {"sum", "difference"}}}});
    const auto [part, held_back] = split(all, {.validation = 0.25, .seed = 1});
    const Standardization inputs = Standardization::of(part);
    Prefetch batches(TrainingBatches(part, inputs, {.batch_size = 10, .replicas = 2, .seed = 1}), {.workers = 1});
    EvaluationBatches validation(held_back, inputs, 10);
    DataParallel<Heads, Losses<At<"larger", CrossEntropy<2>>, At<"both", MeanSquaredError>>, Adam, ConcatMean, Host>
        training({.replicas = 2, .batch_size = 10, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    fit(training, batches, {.epochs = 40});
    const Evaluation result = evaluate(training, validation);
    CHECK(result.accuracy() > 0.9);
    CHECK(result.loss < 0.3);
    // Without one of its columns the training does not begin.
    const Table classes =
        read_csv(runs.table,
                 {.inputs = {"a", "b"}, .named_targets = {{.name = "larger", .columns = {"larger"}, .classes = true}}});
    Prefetch less(TrainingBatches(classes, inputs, {.batch_size = 10, .replicas = 2, .seed = 1}));
    CHECK(message_of<InvalidArgument>([&] { fit(training, less, {.steps = 1}); }) ==
          "the batches have no column both, which mean_squared_error reads; the columns are: input, larger");
}

TEST_CASE("a training on a generator has the same batches for any replicas, and learns what a second seed shows") {
    const auto trained = [](std::int64_t batch_size, int replicas, int workers) {
        Prefetch batches(halves(batch_size, replicas, 1), {.workers = workers});
        Training training({.replicas = replicas,
                           .batch_size = batch_size,
                           .seed = 1,
                           .optimizer = {.learning_rate = 0.2, .momentum = 0.9}});
        fit(training, batches, {.steps = 300});
        FirstBatches unseen(halves(batch_size, 1, 2), 12);
        const Evaluation result = evaluate(training, unseen);
        CHECK(result.samples == 12 * batch_size);
        CHECK(result.accuracy() > 0.9);
        return training.state().parameters;
    };
    const std::vector<float> one = trained(32, 1, 0), again = trained(32, 1, 2), two = trained(16, 2, 0);
    CHECK(one == again);
    REQUIRE(one.size() == two.size());
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(two[i] == doctest::Approx(one[i]).epsilon(0.01));
}

TEST_CASE("fit counts the epochs of a part of a data set and of a generator, and none of an endless one") {
    const Runs runs;
    const Table all = read_csv(runs.table, {.label = "kind"});
    const auto [part, held_back] = split(all, {.validation = 0.25, .seed = 4});
    Prefetch of_part(TrainingBatches(part, Standardization::of(part), {.batch_size = 20, .seed = 1}));
    Training training({.batch_size = 20, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    CHECK(fit(training, of_part, {.epochs = 2}).steps == 9);  // 90 samples
    Training other({.batch_size = 20, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    Prefetch of_generator(halves(20, 1, 1, 100));
    CHECK(fit(other, of_generator, {.epochs = 3}).steps == 15);
    Prefetch endless(halves(20, 1, 1));
    CHECK(contains(message_of<InvalidArgument>([&] { fit(other, endless, {.epochs = 1}); }), "use .steps"));
}

TEST_CASE("a table of another width than the network, or of numbers where the loss takes classes, is rejected") {
    const Runs runs("a,b,c\n1,2,3\n4,5,6\n7,8,0\n");
    Training training({.batch_size = 3, .seed = 1, .optimizer = {.learning_rate = 0.01}});
    const auto refusal = [&](const CsvOptions& options) {
        const Table table = read_csv(runs.table, options);
        Prefetch batches(TrainingBatches(table, IdentityTransform{}, {.batch_size = 3, .seed = 1}));
        return message_of<InvalidArgument>([&] { fit(training, batches, {.steps = 1}); });
    };
    CHECK(refusal({.inputs = {"a"}, .label = "c"}) == "the batches have samples of 1, and the network takes 2");
    CHECK(refusal({.targets = {"c"}}) ==
          "the batches have a column target of float32 1, and cross_entropy reads int32 1");
    // Three classes, and the network tells two apart.
    const Table three = read_csv(runs.table, {.label = "c"});
    Prefetch batches(TrainingBatches(three, IdentityTransform{}, {.batch_size = 3, .seed = 1}));
    CHECK(contains(message_of<Error>([&] { fit(training, batches, {.steps = 1}); }),
                   " has 3 classes, and the loss cross_entropy distinguishes 2"));
}

TEST_CASE(
    "more classes in the data than the loss distinguishes are rejected before the first step; fewer are a warning") {
    std::vector<float> values(24, 0.5F);
    std::vector<std::int32_t> labels;
    for (std::int32_t i = 0; i < 12; ++i) labels.push_back(i % 3);  // the fourth class is rare
    const std::vector<std::int32_t> zeros(12);
    const InMemory four(Net::input_shape, values, labels, 4, "rare"),
        three(Net::input_shape, values, labels, 3, "frequent"), two(Net::input_shape, values, zeros, 2, "few");
    struct Wider : Sequential<Input<2>, Linear<3>> {};
    using OfThree = DataParallel<Wider, CrossEntropy<3>, Sgd, ConcatMean, Host>;
    OfThree training({.batch_size = 4, .seed = 1});
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::tmpfile(), &std::fclose);
    /// The error, or else what was written.
    const auto said = [&](auto& of, auto&& batches, const auto& options, bool json = false) {
        std::rewind(output.get());
        REQUIRE(ftruncate(fileno(output.get()), 0) == 0);
        const std::string error = message_of<InvalidArgument>(
            [&] { fit(of, batches, options, LogEvery(LogOptions{.every = 0, .file = output.get(), .json = json})); });
        if (error != "(no exception)") return error;
        std::string text(1000, '\0');
        std::rewind(output.get());
        text.resize(std::fread(text.data(), 1, text.size(), output.get()));
        return text;
    };
    const std::string refused = "the data set rare has 4 classes, and the loss cross_entropy distinguishes 3";
    const FitOptions<OfThree> once{.steps = 1};
    CHECK(said(training, InMemoryBatches(four, {.batch_size = 4}), once) == refused);
    CHECK(said(training, Prefetch(TrainingBatches(four, IdentityTransform{}, {.batch_size = 4})), once) == refused);
    const auto parts = split(four, {.validation = 0.5, .seed = 1});
    CHECK(said(training, Prefetch(TrainingBatches(parts.training, IdentityTransform{}, {.batch_size = 4})), once) ==
          refused);
    CHECK(training.step() == 0);
    EvaluationBatches test(four, IdentityTransform{}, 4);
    CHECK(message_of<InvalidArgument>([&] { (void)evaluate(training, test); }) == refused);
    CHECK(message_of<InvalidArgument>([&] { (void)evaluate(training, test, metrics::Accuracy{}); }) == refused);
    CHECK(said(training, InMemoryBatches(three, {.batch_size = 4}),
               FitOptions<OfThree>{.steps = 1, .validation = test}) == refused);
    CHECK(training.step() == 0);
    CHECK(said(training, InMemoryBatches(three, {.batch_size = 4}), once).empty());
    const std::string warning =
        "the data set few has 2 classes, and the loss cross_entropy distinguishes 3: the network has outputs that are of no "
        "class";
    CHECK(said(training, InMemoryBatches(two, {.batch_size = 4}), once) == "warning: " + warning + '\n');
    CHECK(said(training, InMemoryBatches(two, {.batch_size = 4}), once, true) ==
          "{\"message\":\"warning: " + warning + "\"}\n");

    // A label that is ignored, and none of the loss's classes, is no class too many.
    using Ignoring = DataParallel<Wider, WeightedCrossEntropy<3>, Sgd, ConcatMean, Host>;
    Ignoring ignores({.batch_size = 4, .loss = {{.ignored_label = 3}}}), counts({.batch_size = 4});
    CHECK(said(ignores, InMemoryBatches(four, {.batch_size = 4}), FitOptions<Ignoring>{.steps = 1}).empty());
    CHECK(contains(said(counts, InMemoryBatches(four, {.batch_size = 4}), FitOptions<Ignoring>{.steps = 1}),
                   "and the loss weighted_cross_entropy distinguishes 3"));
}

TEST_CASE("the classes of each column of a table are compared with the loss that reads it") {
    struct Heads : Sequential<Input<1>, Linear<4>, ReLU, Keep<"body">, Linear<2>, Output<"kind">, From<"body">,
                              Linear<2>, Output<"size">> {};
    using Loss = Losses<At<"kind", CrossEntropy<2>>, At<"size", CrossEntropy<2>>>;
    const Runs file("x,kind,size\n1,cat,S\n2,dog,M\n3,cat,L\n4,dog,M\n");
    const Table table =
        read_csv(file.table, {.inputs = {"x"},
                              .named_targets = {{.name = "kind", .columns = {"kind"}, .classes = true},
                                                {.name = "size", .columns = {"size"}, .classes = true}}});
    DataParallel<Heads, Loss, Sgd, ConcatMean, Host> training({.batch_size = 2});
    Prefetch batches(TrainingBatches(table, IdentityTransform{}, {.batch_size = 2}));
    CHECK(message_of<InvalidArgument>([&] { fit(training, batches, {.steps = 1}); }) ==
          "the data set " + file.table +
              " has 3 classes in its column size, and the loss cross_entropy distinguishes 2");
}

TEST_CASE("the names of the classes of every column of a table are kept with the weights") {
    struct Heads : Sequential<Input<1>, Linear<4>, ReLU, Keep<"body">, Linear<2>, Output<"target">, From<"body">,
                              Linear<3>, Output<"size">> {};
    using Loss = Losses<At<"target", CrossEntropy<2>>, At<"size", CrossEntropy<3>>>;
    const Runs file("x,kind,size\n1,dog,S\n2,cat,M\n3,cat,L\n4,dog,M\n");
    const Table table =
        read_csv(file.table, {.inputs = {"x"},
                              .named_targets = {{.name = "target", .columns = {"kind"}, .classes = true},
                                                {.name = "size", .columns = {"size"}, .classes = true}}});
    DataParallel<Heads, Loss, Sgd, ConcatMean, Host> training({.batch_size = 2});
    Prefetch batches(TrainingBatches(table, IdentityTransform{}, {.batch_size = 2}));
    TrainingRun run(
        {.folder = file.folder.path("run"), .max_steps = 1, .log = {.every = 0, .file = file.silence.get()}});
    run.train(training, batches, NoTest{});
    const Predictor<Heads> predictor(file.folder.path("run/model-1.safetensors"));
    CHECK(predictor.classes() == table.classes("target"));
    CHECK(predictor.classes() == std::vector<std::string>{"cat", "dog"});
    CHECK(predictor.classes("size") == std::vector<std::string>{"L", "M", "S"});
}
