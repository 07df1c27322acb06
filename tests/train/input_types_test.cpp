// SPDX-License-Identifier: Apache-2.0
//
// Programs whose networks read ids and bytes, from the data set to the prediction: fit, evaluate, checkpoints, Predictor and
// summaries.
#include "../test.hpp"

#include <unistd.h>

#include <cupola/cupola.hpp>
#include <cupola/data/csv.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/data/split.hpp>
#include <cupola/host.hpp>
#include <cupola/io/fingerprint.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/predict.hpp>
#include <cupola/train/summary_writer.hpp>

#include "throws_with.hpp"

namespace {

constexpr std::int64_t word_count = 40, words_per_text = 12, text_kinds = 4;

struct BagOfWords
    : Sequential<Input<1, words_per_text>, Embedding<word_count, 16>, GlobalAvgPool2d, Linear<text_kinds>> {};

/// Texts of a kind: half of their words are from the kind's own tenth of the words, the others are any.
struct Texts {
    std::vector<std::int32_t> words, kinds;

    Texts(std::int64_t count, std::uint64_t seed) {
        for (std::int64_t i = 0; i < count; ++i) {
            const auto drawn = [&](std::int64_t k, std::uint32_t below) {
                const RandomStream stream(seed, RngDomain::user, static_cast<std::uint32_t>(k),
                                          static_cast<std::uint64_t>(i));
                return static_cast<std::int32_t>(uniform_below(stream.words(0)[0], below));
            };
            kinds.push_back(drawn(100, text_kinds));
            for (std::int64_t k = 0; k < words_per_text; ++k)
                words.push_back(k % 2 == 0 ? kinds.back() * 10 + drawn(k, 10) : drawn(k, word_count));
        }
    }
};

template <class Net, std::int64_t classes = text_kinds>
using TrainingOf = DataParallel<Net, CrossEntropy<classes>, Sgd, ConcatMean, Host>;

std::string temporary_file(const char* name) {
    return (std::filesystem::temp_directory_path() / text(name, '-', getpid(), ".safetensors")).string();
}

/// Six images of 4 x 4 x 3 of random bytes.
ImageSet random_images() {
    std::vector<std::uint8_t> pixels(6 * 48);
    for (std::size_t i = 0; i < pixels.size(); ++i)
        pixels[i] = static_cast<std::uint8_t>(RandomStream(1, RngDomain::user, 0, i).words(0)[0] >> 24);
    return {"images", {4, 4, 3}, std::move(pixels), {0, 1, 1, 0, 1, 0}, {"cat", "dog"}};
}

/// The byte of an image's negative: a transform of one's own that leaves bytes.
struct Negative {
    [[nodiscard]] Shape output(const Shape& input) const { return input; }
    void operator()(std::span<const std::uint8_t> image, const Shape&, const RandomStream&, std::uint8_t* to) const {
        for (std::size_t i = 0; i < image.size(); ++i) to[i] = static_cast<std::uint8_t>(255 - image[i]);
    }
};

struct OfBytes : Sequential<Input<4, 4, 3>, FromBytes<means(0), deviations(1)>, Named<"conv", Conv2d<5, 3>>, ReLU,
                            Flatten, Named<"out", Linear<2>>> {};
struct OfFloats : Sequential<Input<4, 4, 3>, Named<"conv", Conv2d<5, 3>>, ReLU, Flatten, Named<"out", Linear<2>>> {};

}  // namespace

TEST_CASE("a bag of words is classified, from a data set of ids to a prediction from a checkpoint") {
    const Texts texts(600, 1), others(200, 2);
    const InMemory data(BagOfWords::input_shape, texts.words, texts.kinds, text_kinds),
        test(BagOfWords::input_shape, others.words, others.kinds, text_kinds);
    const BatchOptions options{.batch_size = 20, .replicas = 2, .seed = 1};
    const auto trained = [&](auto&& batches) {
        TrainingOf<BagOfWords> training({.replicas = 2,
                                         .devices = 2,
                                         .batch_size = 20,
                                         .evaluation_batch_size = 50,
                                         .seed = 1,
                                         .optimizer = {.learning_rate = 1.0}});
        fit(training, batches, {.steps = 150});
        CHECK(evaluate(training, EvaluationBatches(test, AsStored{}, 50)).accuracy() > 0.95);
        Checkpoint checkpoint;
        checkpoint.state = training.state();
        return checkpoint;
    };
    const Checkpoint checkpoint = trained(InMemoryBatches(data, options));
    CHECK(checkpoint.state.parameters ==
          trained(Prefetch(TrainingBatches(data, AsStored{}, options), {.workers = 2})).state.parameters);

    const std::string path = temporary_file("bag_of_words");
    write_checkpoint(path, BagOfWords::layers, checkpoint);
    const Predictor<BagOfWords> predictor(path, {.max_batch = 8});
    std::filesystem::remove(path);
    TrainingOf<BagOfWords> training({.batch_size = 8});
    training.restore(checkpoint.state);
    // Batches of one size have the same bits on every instruction set.
    std::vector<std::int32_t> first(others.words.begin(), others.words.begin() + 8 * words_per_text);
    std::vector<float> logits(8 * text_kinds);
    predictor.predict(first, logits);
    CHECK(logits == training.predict(first));
    first[3 * words_per_text + 5] = word_count;
    CHECK(message_of<InvalidArgument>([&] { predictor.predict(first, logits); }) ==
          "the ids of an input must be in range, but sample 3 has the id 40 at [0, 5], and ids are 0 to 39");
    CHECK(message_of<InvalidArgument>([&] { (void)training.predict(first); }) ==
          "the ids of an input must be in range, but sample 3 has the id 40 at [0, 5], and ids are 0 to 39");
}

TEST_CASE("a data set of ids keeps its type in a split, and is not taken as floats") {
    const Texts texts(50, 3);
    const InMemory data(BagOfWords::input_shape, texts.words, texts.kinds, text_kinds);
    const auto [part, held_back] = split(data, {.validation = 0.2, .seed = 1});
    Prefetch batches(TrainingBatches(part, AsStored{}, {.batch_size = 10, .seed = 1}));
    CHECK(batches.columns()[0] == ColumnSpec{"input", ElementType::int32, {1, words_per_text}});
    TrainingOf<BagOfWords> training({.batch_size = 10, .seed = 1});
    fit(training, batches, {.steps = 2});
    CHECK(evaluate(training, EvaluationBatches(held_back, AsStored{}, 10)).samples == 10);
    CHECK(message_of<InvalidArgument>([&] {
              EvaluationBatches floats(data, IdentityTransform{}, 10);
              HostContext context(0, {.threads = 1});
              (void)floats(0, 0, context);
          }) ==
          "the samples of the data set in memory are of int32, not of float32: AsStored is the transform that leaves "
          "them as they are");
    CHECK(message_of<InvalidArgument>([&] {
              EvaluationBatches floats(data, IdentityTransform{}, 10);
              (void)evaluate(training, floats);
          }) == "the batches have a column input of float32 1 x 12, and the network reads int32 1 x 12");
    const std::vector<float> floats(texts.words.begin(), texts.words.end());
    CHECK(fingerprint(data) != fingerprint(InMemory(BagOfWords::input_shape, floats, texts.kinds, text_kinds)));
}

TEST_CASE("a column of texts of a CSV file is an input of ids") {
    struct Flats : Sequential<Input<1>, Linear<2>, Keep<"area">, FromInput<"street", 1>, Embedding<3, 2>, Flatten,
                              AddFrom<"area">, Linear<2>> {};
    const std::string path = temporary_file("flats"), other = temporary_file("more_flats");
    std::ofstream(path) << "area,street,kind\n0.5,Oak,0\n0.1,Elm,1\n0.3,Ash,1\n0.9,Oak,0\n";
    std::ofstream(other) << "kind,area,street\n1,0.2,Elm\n0,0.4,Oak\n";
    const Table flats = read_csv(path, {.inputs = {"area"},
                                        .named_targets = {{.name = "street", .columns = {"street"}, .classes = true},
                                                          {.name = "target", .columns = {"kind"}, .classes = true}}});
    const Table more = read_csv(other, flats);
    CHECK(*static_cast<const std::int32_t*>(more.target(1, 0)) == 2);
    CHECK(flats.classes("street") == std::vector<std::string>{"Ash", "Elm", "Oak"});
    TrainingOf<Flats, 2> training(
        {.batch_size = 4, .evaluation_batch_size = 4, .seed = 1, .optimizer = {.learning_rate = 0.5}});
    Prefetch batches(TrainingBatches(flats, IdentityTransform{}, {.batch_size = 4, .seed = 1}));
    fit(training, batches, {.steps = 100});
    CHECK(evaluate(training, EvaluationBatches(more, IdentityTransform{}, 4)).accuracy() == 1);
    std::filesystem::remove(path);
    std::filesystem::remove(other);
}

TEST_CASE("a generator makes ids") {
    const Columns columns{{"input", ElementType::int32, {1, words_per_text}}, {"target", ElementType::int32, {1}}};
    const auto draw = [](std::int64_t, const RandomStream& random, const BatchSpan& sample) {
        const auto kind = static_cast<std::int32_t>(uniform_below(random.words(0)[0], text_kinds));
        for (std::uint32_t k = 0; k < words_per_text; ++k)
            sample.data<std::int32_t>("input")[k] =
                kind * 10 + static_cast<std::int32_t>(uniform_below(random.words(1 + k)[0], 10));
        sample.labels()[0] = kind;
    };
    Prefetch batches(Generator(columns, draw, {.batch_size = 16, .seed = 1}), {.workers = 1});
    TrainingOf<BagOfWords> training({.batch_size = 16, .seed = 1, .optimizer = {.learning_rate = 1.0}});
    fit(training, batches, {.steps = 60});
    FirstBatches test(Generator(columns, draw, {.batch_size = 16, .seed = 2}), 4);
    CHECK(evaluate(training, test).accuracy() > 0.95);
}

TEST_CASE("a network of bytes trains like the network of the same numbers as floats, bit by bit") {
    const ImageSet images = random_images();
    const BatchOptions options{.batch_size = 3, .seed = 4};
    const auto trained = [&]<class Net>(const Net&, auto transform) {
        TrainingOf<Net, 2> training({.batch_size = 3, .seed = 2, .optimizer = {.learning_rate = 1e-5}});
        Prefetch batches(TrainingBatches(images, transform, options));
        fit(training, batches, {.steps = 4});
        CHECK(evaluate(training, EvaluationBatches(images, transform, 3)).samples == 6);
        return std::pair(training.parameters(), evaluate(training, EvaluationBatches(images, transform, 3)).loss);
    };
    const auto bytes = trained(OfBytes{}, AsStored{});
    CHECK(bytes == trained(OfFloats{}, IdentityTransform{}));
    CHECK(bytes != trained(OfBytes{}, Negative{}));

    const std::vector<std::uint8_t> pixels(images.sample(1).begin(), images.sample(1).end());
    const std::vector<float> floats(pixels.begin(), pixels.end());
    TrainingOf<OfBytes, 2> of_bytes({.batch_size = 3, .seed = 2});
    TrainingOf<OfFloats, 2> of_floats({.batch_size = 3, .seed = 2});
    CHECK(of_bytes.predict(pixels) == of_floats.predict(floats));
    Checkpoint checkpoint;
    checkpoint.state = of_bytes.state();
    std::vector<float> outputs(2);
    Predictor<OfBytes>(checkpoint, "bytes").predict(pixels, outputs);
    CHECK(outputs == of_floats.predict(floats));
}

TEST_CASE("a checkpoint is not read by a network whose inputs have other types") {
    TrainingOf<OfBytes, 2> of_bytes({.batch_size = 3, .seed = 2});
    Checkpoint checkpoint;
    checkpoint.state = of_bytes.state();
    const std::string path = temporary_file("of_bytes");
    write_checkpoint(path, OfBytes::layers, checkpoint);
    CHECK(read_checkpoint(path, OfBytes::layers).state.parameters == checkpoint.state.parameters);
    CHECK(read_checkpoint(path, OfBytes::layers).info.entries().empty());
    CHECK(message_of<DataError>([&] { (void)read_checkpoint(path, OfFloats::layers); }) ==
          path +
              " is the checkpoint of a network with other inputs: it reads input uint8 4 x 4 x 3, and this network "
              "floats alone");
    TrainingOf<OfFloats, 2> of_floats({.batch_size = 3, .seed = 2});
    checkpoint.state = of_floats.state();
    write_checkpoint(path, OfFloats::layers, checkpoint);
    CHECK(contains(message_of<DataError>([&] { (void)read_checkpoint(path, OfBytes::layers); }),
                   "it reads floats alone, and this network input uint8 4 x 4 x 3"));
    std::filesystem::remove(path);
}

TEST_CASE("a summary shows images of bytes as they are, and an inspection leaves ids out") {
    struct KeptImages : SummarySink {
        std::map<std::string, PixelImage> images;
        void start(std::int64_t) override {}
        void write(std::int64_t, const StepSummary& summary) override {
            for (const auto& [tag, image] : summary.images) images[tag] = image;
        }
    };
    const ImageSet images = random_images();
    KeptImages kept;
    TrainingOf<OfBytes, 2> training({.batch_size = 6, .seed = 2});
    Prefetch batches(TrainingBatches(images, AsStored{}, {.batch_size = 6, .seed = 1}));
    fit(training, batches, {.steps = 1}, SummaryWriter(kept, OfBytes::layers, {.images = 6}));
    REQUIRE(kept.images.count("images/image/5") == 1);
    bool found = false;
    for (std::int64_t i = 0; i < 6; ++i)
        found = found || std::ranges::equal(kept.images["images/image/0"].pixels, images.sample(i));
    CHECK(found);

    struct WithKeep
        : Sequential<Input<1, words_per_text>, Keep<"ids">, Embedding<word_count, 3>, GlobalAvgPool2d, Keep<"a">,
                     From<"ids">, Embedding<word_count, 3>, GlobalAvgPool2d, AddFrom<"a">, Linear<text_kinds>> {};
    const Texts texts(4, 3);
    TrainingOf<WithKeep> of_ids({.batch_size = 4, .seed = 2});
    const BatchView view{4,
                         {{{"input", ElementType::int32, {1, words_per_text}}, texts.words.data()},
                          {{"target", ElementType::int32, {1}}, texts.kinds.data()}}};
    std::vector<std::size_t> visited;
    of_ids.step(
        [&](std::int64_t, int, HostContext&) { return view; },
        [&](const TrainingOf<WithKeep>::InspectionType& shown) {
            shown.for_each_activation([&](std::size_t layer, std::span<const float>) { visited.push_back(layer); });
        });
    CHECK(visited == std::vector<std::size_t>{1, 2, 3, 5, 6, 7, 8});
}
