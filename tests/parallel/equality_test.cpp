// SPDX-License-Identifier: Apache-2.0
//
// R replicas of batch B are one replica of batch R x B: the guarantee of data parallelism.
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/models/tutorial_augmentation.hpp>

#include "../data/labelled.hpp"
#include "tutorial.hpp"

namespace {

using Training = tutorial::AnyTraining;
/// The fewer for all numbers of replicas but one.
constexpr std::int64_t few_steps = 10, equal_steps = sanitized ? few_steps : 50;
constexpr std::int64_t batch_size = 16;

auto batches_of(int replicas, std::int64_t batch) {
    return Prefetch(TrainingBatches(tutorial::sample().train, TutorialAugmentation{},
                                    {.batch_size = batch, .replicas = replicas, .seed = 4}));
}

}  // namespace

TEST_CASE(
    "from equal parameters, R replicas and one replica with the whole batch agree on loss and gradient at each step") {
    for (const int replicas : {2, 3, 4}) {
        CAPTURE(replicas);
        Training many({.replicas = replicas, .batch_size = batch_size, .seed = 4});
        Training one({.replicas = 1, .batch_size = batch_size * replicas, .seed = 4});
        auto batches_for_many = batches_of(replicas, batch_size);
        auto batches_for_one = batches_of(1, batch_size * replicas);
        const std::int64_t steps = replicas == 3 ? equal_steps : few_steps;
        for (std::int64_t step = 0; step < steps; ++step) {
            CAPTURE(step);
            one.set_parameters(many.parameters());
            const double loss_of_one = one.step(batches_for_one).loss;
            const double loss_of_many = many.step(batches_for_many).loss;
            REQUIRE(loss_of_many == doctest::Approx(loss_of_one).epsilon(1e-5));
            REQUIRE(tutorial::difference(many.averaged_gradient(), one.averaged_gradient()) < 1e-5);
        }
    }
}

TEST_CASE("running free, the losses of the first ten steps agree") {
    for (const int replicas : {2, 4}) {
        CAPTURE(replicas);
        Training many({.replicas = replicas, .batch_size = batch_size, .seed = 4});
        Training one({.replicas = 1, .batch_size = batch_size * replicas, .seed = 4});
        auto batches_for_many = batches_of(replicas, batch_size);
        auto batches_for_one = batches_of(1, batch_size * replicas);
        for (int step = 0; step < 10; ++step) {
            CAPTURE(step);
            const double loss_of_one = one.step(batches_for_one).loss;
            CHECK(many.step(batches_for_many).loss == doctest::Approx(loss_of_one).epsilon(1e-4));
        }
    }
}

namespace {

/// Images and labels of `count` samples, one after another.
struct Samples {
    std::vector<float> images;
    std::vector<std::int32_t> labels;
    explicit Samples(std::int64_t count) {
        const TrainingBatches source(tutorial::sample().train, TutorialAugmentation{},
                                     {.batch_size = count, .replicas = 1, .seed = 9});
        images.resize(static_cast<std::size_t>(count * 24 * 24 * 3));
        labels.resize(static_cast<std::size_t>(count));
        source.fill(0, 0, labelled(source, images.data(), labels.data()));
    }
    [[nodiscard]] BatchView view(std::int64_t first, std::int64_t size) const {
        return {images.data() + first * 24 * 24 * 3, labels.data() + first, size, Shape{24, 24, 3}};
    }
};

}  // namespace

TEST_CASE("with unequal batches the gradient is that of all samples together, which the mean of means is not") {
    constexpr std::int64_t full = 128, rest = 40, all = 2 * full + rest;
    const Samples samples(all);
    tutorial::SmallTraining<> many({.replicas = 3, .batch_size = full, .other_batch_sizes = {rest}, .seed = 4});
    tutorial::SmallTraining<> one({.replicas = 1, .batch_size = all, .seed = 4});
    const BatchView three[] = {samples.view(0, full), samples.view(full, full), samples.view(2 * full, rest)};
    const BatchView whole[] = {samples.view(0, all)};
    const double loss = many.step(three).loss;
    CHECK(loss == doctest::Approx(one.step(whole).loss).epsilon(1e-5));
    CHECK(tutorial::difference(many.averaged_gradient(), one.averaged_gradient()) < 1e-5);

    std::vector<float> mean_of_means(many.averaged_gradient().size());
    for (int replica = 0; replica < 3; ++replica) {
        const std::vector<float> gradient = many.gradient(replica);
        for (std::size_t i = 0; i < gradient.size(); ++i) mean_of_means[i] += gradient[i] / 3.0F;
    }
    CHECK(tutorial::difference(mean_of_means, one.averaged_gradient()) > 1e-2);
}

TEST_CASE("dropout is independent for the samples of all replicas and of all accumulated batches") {
    struct Dropped : Sequential<Input<24, 24, 3>, Flatten, Dropout<0.5>, Linear<10>> {};
    using Dropping = DataParallel<Dropped, CrossEntropy<10>, Sgd, ConcatMean, Host>;
    const Samples samples(16);
    const BatchView halves[] = {samples.view(0, 8), samples.view(8, 8)}, whole[] = {samples.view(0, 16)};
    Dropping many({.replicas = 2, .batch_size = 8, .seed = 4}), one({.batch_size = 16, .seed = 4});
    many.step(halves);
    one.step(whole);
    CHECK(tutorial::difference(many.averaged_gradient(), one.averaged_gradient()) < 1e-5);

    // The same samples twice have the gradient of once, but for what is dropped.
    Dropping twice({.batch_size = 16, .gradient_accumulation_steps = 2, .seed = 4});
    twice.step(whole);
    CHECK(tutorial::difference(twice.averaged_gradient(), one.averaged_gradient()) > 1e-2);
}

TEST_CASE("a replica without samples changes nothing, even if its gradient row contains a NaN") {
    const Samples samples(16);
    const BatchView both[] = {samples.view(0, 8), samples.view(8, 8)};
    const BatchView first_only[] = {samples.view(0, 8), {}};
    std::vector<float> bad_image(24 * 24 * 3, std::numeric_limits<float>::quiet_NaN());
    const std::int32_t label = 0;
    const BatchView poisoned[] = {samples.view(0, 8), {bad_image.data(), &label, 1, Shape{24, 24, 3}}};

    tutorial::SmallTraining<> training({.replicas = 2, .batch_size = 8, .other_batch_sizes = {1}, .seed = 4});
    tutorial::SmallTraining<> alone({.replicas = 1, .batch_size = 8, .seed = 4});
    training.step(both);
    alone.set_parameters(training.parameters());
    // A batch that is not finite leaves its traces in the device's memory, and stops the step.
    const std::vector<float> before = training.parameters();
    CHECK_THROWS_AS(training.step(poisoned), DivergedError);
    CHECK(training.parameters() == before);
    const StepReport& report = training.step(first_only);
    CHECK(report.samples == 8);
    CHECK(report.replicas[1].samples == 0);
    CHECK(report.loss == doctest::Approx(report.replicas[0].total));
    const BatchView alone_batch[] = {samples.view(0, 8)};
    alone.step(alone_batch);
    CHECK(training.parameters() == alone.parameters());
}

TEST_CASE("a step without any samples is an error") {
    tutorial::SmallTraining<> training({.replicas = 2, .batch_size = 8});
    const BatchView none[2] = {};
    CHECK_THROWS_WITH_AS(training.step(none), "step 0 has no samples on any replica", InvalidArgument);
    CHECK(training.step() == 0);
}
