// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/net/samples_of.hpp
//
// Batches that do not fit the network or the training are rejected before a sample is read, in every function.
#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>

#include "throws_with.hpp"

namespace {

struct Net : Sequential<Input<6, 6, 3>, Conv2d<4, 3>, ReLU, Flatten, Linear<2>> {};
using Training = DataParallel<Net, CrossEntropy<2>, Sgd, ConcatMean, Host>;

constexpr std::int64_t samples = 16;

/// Data of 6 x 6 x `channels`.
struct Images {
    std::vector<float> pixels;
    std::vector<std::int32_t> labels = std::vector<std::int32_t>(samples, 1);
    InMemory data;

    explicit Images(std::int64_t channels)
        : pixels(static_cast<std::size_t>(samples * 36 * channels), 0.25F),
          data(Shape{6, 6, channels}, pixels, labels, 2) {}
    Images(const Images&) = delete;
    [[nodiscard]] BatchView view(std::int64_t size) const {
        return {pixels.data(), labels.data(), size, data.sample_shape()};
    }
};

struct CountsBegins {
    int begins = 0;
    void on_begin(Run&) { ++begins; }
};

/// A user's own source, which announces nothing.
struct Silent {
    BatchView batch;
    BatchView operator()(std::int64_t, int, HostContext&) const { return batch; }
};

template <class Act>
std::string refusal(Act&& act) {
    return message_of<InvalidArgument>(act);
}

}  // namespace

TEST_CASE("fit, step and evaluate reject batches with samples of other extents") {
    for (const std::int64_t channels : {1, 4}) {
        const Images images(channels);
        const std::string expected = text("samples of 6 x 6 x ", channels, ", and the network takes 6 x 6 x 3"),
                          of_source = "the batches have ", of_batch = "a batch has ";
        Training training({.replicas = 2, .devices = 2, .batch_size = 4});
        const std::vector<float> before = training.parameters();
        InMemoryBatches batches(images.data, {.batch_size = 4, .replicas = 2});
        Prefetch prefetch(TrainingBatches(images.data, IdentityTransform{}, {.batch_size = 4, .replicas = 2}));
        CountsBegins callback;
        CHECK(refusal([&] { fit(training, batches, {.steps = 2}, callback); }) == of_source + expected);
        CHECK(refusal([&] { fit(training, prefetch, {.steps = 2}, callback); }) == of_source + expected);
        CHECK(callback.begins == 0);
        CHECK(refusal([&] { training.step(batches); }) == of_source + expected);
        CHECK(refusal([&] { (void)evaluate(training, EvaluationBatches(images.data, IdentityTransform{}, 4)); }) ==
              of_source + expected);

        Silent silent{images.view(4)};
        CHECK(refusal([&] { fit(training, silent, {.steps = 2}); }) == of_batch + expected);
        CHECK(refusal([&] { training.step(silent); }) == of_batch + expected);
        CHECK(refusal([&] { (void)training.evaluate(silent, 1); }) == of_batch + expected);
        const BatchView views[] = {images.view(4), images.view(4)};
        CHECK(refusal([&] { training.step(std::span(views)); }) == of_batch + expected);
        CHECK(training.step() == 0);
        CHECK(training.parameters() == before);
    }
}

TEST_CASE("batches that were made for another number of replicas are rejected") {
    const Images images(3);
    InMemoryBatches two(images.data, {.batch_size = 4, .replicas = 2}), one(images.data, {.batch_size = 4});
    Prefetch prefetched_two(TrainingBatches(images.data, IdentityTransform{}, {.batch_size = 4, .replicas = 2}));
    Training of_one({.batch_size = 4}), of_two({.replicas = 2, .batch_size = 4});
    CountsBegins callback;
    CHECK(refusal([&] { fit(of_one, two, {.steps = 1}, callback); }) ==
          "the batches are made for 2 replicas, and the training has 1");
    CHECK(refusal([&] { fit(of_one, prefetched_two, {.steps = 1}, callback); }) ==
          "the batches are made for 2 replicas, and the training has 1");
    CHECK(callback.begins == 0);
    CHECK(refusal([&] { of_one.step(two); }) == "the batches are made for 2 replicas, and the training has 1");
    CHECK(refusal([&] { of_two.step(one); }) == "the batches are made for 1 replica, and the training has 2");
    CHECK(of_one.step() == 0);
    CHECK(fit(of_one, one, {.steps = 1}, callback).steps == 1);
    CHECK(fit(of_two, two, {.steps = 1}, callback).steps == 1);
}

TEST_CASE("a batch with samples and a null pointer is rejected in a step and in an evaluation") {
    const Images images(3);
    Training training({.batch_size = 4});
    const Shape shape = images.data.sample_shape();
    Silent without_samples{{nullptr, images.labels.data(), 4, shape}},
        without_labels{{images.pixels.data(), nullptr, 4, shape}};
    CHECK(refusal([&] { training.step(without_samples); }) ==
          "a batch of 4 samples has a null pointer to its column input");
    CHECK(refusal([&] { training.step(without_labels); }) ==
          "a batch of 4 samples has a null pointer to its column target");
    CHECK(refusal([&] { (void)training.evaluate(without_samples, 1); }) ==
          "a batch of 4 samples has a null pointer to its column input");
    CHECK(refusal([&] { (void)training.evaluate(without_labels, 1); }) ==
          "a batch of 4 samples has a null pointer to its column target");
    CHECK(training.step(Silent{images.view(4)}).samples == 4);
}

TEST_CASE("samples to predict may be a vector, an array or a span of whole samples") {
    Training training({.batch_size = 4, .seed = 1});
    const Images images(3);
    const std::vector<float> three(images.pixels.begin(), images.pixels.begin() + 3 * 108);
    const std::vector<float> expected = training.predict({three.data(), 3});
    CHECK(expected.size() == 6);
    CHECK(training.predict(three) == expected);
    CHECK(training.predict(std::span(three), Weights::trained) == expected);
    CHECK(training.predict(std::vector<float>(three)) == expected);
    std::array<float, 108> one{};
    std::copy_n(three.begin(), 108, one.begin());
    CHECK(training.predict(one) == training.predict({three.data(), 1}));
    CHECK(refusal([&] { (void)training.predict(std::vector<float>(109)); }) ==
          "samples of this network have 108 values each, and 109 were given");
}

TEST_CASE("an evaluation's batch may be larger than training's if the options allow it, and is rejected otherwise") {
    const Images images(3);
    const EvaluationBatches large(images.data, IdentityTransform{}, 16), small(images.data, IdentityTransform{}, 4);
    Training training({.batch_size = 4, .seed = 1}),
        announced({.batch_size = 4, .evaluation_batch_size = 16, .seed = 1});
    const std::string expected =
        "a forward pass takes 1 to 4 samples, the larger of batch_size and evaluation_batch_size in the options, not 16";
    int asked = 0;
    struct Asked {
        const EvaluationBatches<InMemory, IdentityTransform>& batches;
        int& count;
        [[nodiscard]] std::int64_t size_of(std::int64_t i) const { return batches.size_of(i); }
        BatchView operator()(std::int64_t i, int slot, HostContext& context) const {
            ++count;
            return batches(i, slot, context);
        }
    };
    CHECK(refusal([&] { (void)training.evaluate(Asked{large, asked}, 1); }) == expected);
    CHECK(asked == 0);
    CHECK(refusal([&] { (void)training.evaluate(Silent{images.view(16)}, 1); }) == expected);
    CHECK(refusal([&] { (void)training.predict({images.pixels.data(), 16}); }) == expected);
    CHECK(refusal([&] { (void)training.evaluate(small, -1); }) == "an evaluation must have 0 or more batches, not -1");

    const Evaluation of_small = evaluate(training, small), of_large = evaluate(announced, large);
    CHECK(of_large.samples == samples);
    CHECK(of_large.correct == of_small.correct);
    CHECK(of_large.loss == doctest::Approx(of_small.loss).epsilon(1e-6));
    CHECK(announced.predict({images.pixels.data(), 16}).size() == 32);
    constexpr std::int64_t many = 2048;
    Training of_many({.batch_size = 1, .evaluation_batch_size = many}), single({.batch_size = 1});
    CHECK(of_many.memory().plan.total() > single.memory().plan.total());
    CHECK(of_many.predict({std::vector<float>(many * 108).data(), many}).size() == many * 2);
    CHECK(announced.step(Silent{images.view(4)}).loss == training.step(Silent{images.view(4)}).loss);
    CHECK(announced.parameters() == training.parameters());
    CHECK(refusal([] { Training({.replicas = 1 << 19, .gradient_accumulation_steps = 4}); }) ==
          "a step can have at most 1048576 batches, not those of 524288 replicas times 4 gradient_accumulation_steps");
    CHECK(refusal([] { Training({.evaluation_batch_size = -1}); }) ==
          "evaluation_batch_size must be 0 (that of training) or more, not -1");
}
