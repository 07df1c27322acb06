// SPDX-License-Identifier: Apache-2.0
//
// The policies for batch normalisation's running statistics: which replica's they are, and that replicas which share
// them in forward and backward are one replica with the whole batch.
// Covers: cupola/parallel/synchronized.hpp
#include <cupola/parallel/statistics.hpp>

#include "../test.hpp"

#include <cupola/data/augmentation.hpp>
#include <cupola/layers/batch_norm2d.hpp>
#include <cupola/models/tutorial_augmentation.hpp>
#include <cupola/net/frozen.hpp>
#include <cupola/ops/host/batch_norm.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "../data/labelled.hpp"
#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

struct Normalized : Sequential<Input<24, 24, 3>, Named<"conv1", Conv2d<8, 3, stride(2), no_bias>>,
                               Named<"bn1", BatchNorm2d<>>, ReLU, Named<"conv2", Conv2d<8, 3, stride(2), no_bias>>,
                               Named<"bn2", BatchNorm2d<>>, ReLU, Flatten, Named<"fc", Linear<10>>> {};

template <class Statistics>
using Training = DataParallel<Normalized, CrossEntropy<10>, Sgd, ConcatMean, Host, Statistics>;

constexpr std::int64_t batch_size = 8;

auto batches_of(int replicas, std::int64_t batch) {
    return Prefetch(TrainingBatches(tutorial::sample().train, TutorialAugmentation{},
                                    {.batch_size = batch, .replicas = replicas, .seed = 4}));
}

/// Running statistics of two channels after one update of rows (mean, variance) = (1, 2), (3, 4) with 1 and 3 samples
/// of 2 elements per channel, from mean 10 and variance 20.
template <class Policy>
std::vector<float> updated(const Policy& policy) {
    std::vector<float> running{10, 10, 20, 20};
    const std::vector<float> first{1, 1, 2, 2}, second{3, 3, 4, 4};
    const std::vector<const float*> rows{first.data(), second.data()};
    const std::vector<std::int64_t> samples{1, 3};
    const std::vector<RunningStatistics> layers{
        {.mean = 0, .variance = 2, .channels = 2, .decay = 0.5, .elements_per_sample = 2}};
    policy.update(StatisticsUpdate{.running = running.data(), .layers = layers, .rows = rows, .samples = samples});
    return {running[1], running[3]};
}

/// Pooled, and the addresses of the running statistics in each step.
template <bool may_throw>
struct Addresses {
    static constexpr std::string_view name = "addresses";
    static constexpr bool synchronized = false;
    std::vector<const float*>* seen = nullptr;

    void update(const StatisticsUpdate& u) const noexcept(!may_throw) {
        seen->push_back(u.running);
        u.take_pooled();
    }
};
struct SmallNormalized : Sequential<Input<4, 4, 3>, BatchNorm2d<>, Flatten, Linear<3>> {};

}  // namespace

TEST_CASE("each policy keeps the statistics of its name, with the unbiased variance") {
    CHECK(updated(FirstReplica{}) == std::vector<float>{5.5F, 12.0F});                        // 2 * 2/1
    CHECK(updated(LastReplica{}) == std::vector<float>{6.5F, static_cast<float>(10 + 2.4)});  // 4 * 6/5
    CHECK(updated(AllReplicas{}) == std::vector<float>{4.25F, static_cast<float>(0.5 * 12 + 2.4)});
    // mean (1 + 9) / 4 = 2.5; variance (2 + 2.25 + 3 * (4 + 0.25)) / 4 = 4.25, times 8/7
    CHECK(updated(Pooled{})[0] == 6.25F);
    CHECK(updated(Pooled{})[1] == doctest::Approx(10 + 0.5 * 4.25 * 8 / 7));
    CHECK(updated(Synchronized{}) == updated(Pooled{}));
}

TEST_CASE("a policy that cannot throw updates the running statistics in place, and the result is that of a copy") {
    std::vector<float> samples(4 * 48);
    initialize(samples, normal(1.0), 1, 1, 7, 0);
    const std::vector<std::int32_t> labels{0, 1, 2, 0};
    std::vector<const float*> seen;
    const auto buffers = [&]<class Policy>(Policy policy) {
        seen.clear();
        DataParallel<SmallNormalized, CrossEntropy<3>, Sgd, ConcatMean, Host, Policy> training(
            {.batch_size = 4, .statistics = policy});
        const BatchView batch[] = {{samples.data(), labels.data(), 4, Shape{4, 4, 3}}};
        for (int step = 0; step < 3; ++step) training.step(batch);
        return training.state().buffers;
    };
    const std::vector<float> in_place = buffers(Addresses<false>{&seen});
    CHECK(seen == std::vector<const float*>(3, seen[0]));
    CHECK(buffers(Addresses<true>{&seen}) == in_place);
    CHECK(seen.size() == 3);
    CHECK(seen[0] != seen[1]);
    CHECK(seen[0] == seen[2]);
    CHECK(buffers(Pooled{}) == in_place);
    const StatisticsUpdate none;
    static_assert(noexcept(FirstReplica{}.update(none))&& noexcept(LastReplica{}.update(none))&& noexcept(
        AllReplicas{}.update(none))&& noexcept(Pooled{}.update(none))&& noexcept(Synchronized{}.update(none)));
}

TEST_CASE("replicas of one training keep the statistics that the policy names, on any number of devices") {
    const auto buffers = [&]<class Statistics>(Statistics, int devices) {
        Training<Statistics> training({.replicas = 3, .devices = devices, .batch_size = batch_size, .seed = 4});
        auto batches = batches_of(3, batch_size);
        for (int step = 0; step < 3; ++step) training.step(batches);
        return training.state();
    };
    const TrainingState first = buffers(FirstReplica{}, 1), last = buffers(LastReplica{}, 1);
    CHECK(first.parameters == last.parameters);  // each normalises with its own batch, whatever is kept
    CHECK(first.buffers != last.buffers);
    for (const int devices : {2, 3}) {
        CHECK(buffers(FirstReplica{}, devices).buffers == first.buffers);
        CHECK(buffers(AllReplicas{}, devices).buffers == buffers(AllReplicas{}, 1).buffers);
        CHECK(buffers(Pooled{}, devices).buffers == buffers(Pooled{}, 1).buffers);
        const TrainingState together = buffers(Synchronized{}, devices), alone = buffers(Synchronized{}, 1);
        CHECK(together.buffers == alone.buffers);
        CHECK(together.parameters == alone.parameters);
    }
}

TEST_CASE(
    "synchronised replicas have the loss, the gradient and the running statistics of one replica with the whole batch") {
    for (const int replicas : {2, 3, 4}) {
        CAPTURE(replicas);
        Training<Synchronized> many({.replicas = replicas, .devices = 2, .batch_size = batch_size, .seed = 4});
        Training<Synchronized> one({.replicas = 1, .batch_size = batch_size * replicas, .seed = 4});
        Training<Pooled> apart({.replicas = replicas, .batch_size = batch_size, .seed = 4});
        auto of_many = batches_of(replicas, batch_size), of_one = batches_of(1, batch_size * replicas),
             of_apart = batches_of(replicas, batch_size);
        for (int step = 0; step < 5; ++step) {
            one.set_parameters(many.parameters());
            apart.set_parameters(many.parameters());
            apart.step(of_apart);
            const double loss = one.step(of_one).loss;
            CHECK(many.step(of_many).loss == doctest::Approx(loss).epsilon(1e-5));
            CHECK(tutorial::difference(many.averaged_gradient(), one.averaged_gradient()) < 1e-5);
            CHECK(tutorial::difference(apart.averaged_gradient(), one.averaged_gradient()) > 1e-2);
            CHECK(tutorial::difference(many.state().buffers, one.state().buffers) < 1e-5);
        }
    }
}

TEST_CASE("synchronised replicas with unequal batches, and one without samples, are one replica with all samples") {
    const TrainingBatches source(tutorial::sample().train, TutorialAugmentation{},
                                 {.batch_size = 16, .replicas = 1, .seed = 9});
    std::vector<float> images(16 * 24 * 24 * 3);
    std::vector<std::int32_t> labels(16);
    source.fill(0, 0, labelled(source, images.data(), labels.data()));
    const auto view = [&](std::int64_t first, std::int64_t size) {
        return BatchView{images.data() + first * 24 * 24 * 3, labels.data() + first, size, Shape{24, 24, 3}};
    };
    Training<Synchronized> many({.replicas = 3, .devices = 2, .batch_size = 8, .other_batch_sizes = {3}, .seed = 4});
    Training<Synchronized> one({.batch_size = 11, .seed = 4});
    const std::vector<BatchView> batches{view(0, 8), view(8, 0), view(8, 3)}, all{view(0, 11)};
    many.step(batches);
    one.step(all);
    CHECK(tutorial::difference(many.averaged_gradient(), one.averaged_gradient()) < 1e-5);
    CHECK(tutorial::difference(many.state().buffers, one.state().buffers) < 1e-5);
}

TEST_CASE("every accumulated batch of a step updates the running statistics, in order") {
    std::vector<float> images(static_cast<std::size_t>(3 * batch_size * 24 * 24 * 3));
    initialize(images, normal(1.0), 1, 1, 9, 0);
    const std::vector<std::int32_t> labels(static_cast<std::size_t>(3 * batch_size), 1);
    const auto view = [&](std::int64_t place) {
        return BatchView{images.data() + place * batch_size * 24 * 24 * 3, labels.data(), batch_size, Shape{24, 24, 3}};
    };
    Training<Pooled> added_up({.batch_size = batch_size, .gradient_accumulation_steps = 3, .seed = 4}),
        one_by_one({.batch_size = batch_size, .seed = 4});
    const std::vector<float> parameters = one_by_one.parameters();
    added_up.step([&](std::int64_t place, int, HostContext&) { return view(place); });
    for (int step = 0; step < 3; ++step) {
        one_by_one.set_parameters(parameters);
        one_by_one.step([&](std::int64_t place, int, HostContext&) { return view(place); });
    }
    CHECK(added_up.state().buffers == one_by_one.state().buffers);
}

TEST_CASE("synchronised replicas that accumulate batches reject unequal ones") {
    const TrainingBatches source(tutorial::sample().train, TutorialAugmentation{},
                                 {.batch_size = 8, .replicas = 1, .seed = 9});
    std::vector<float> images(8 * 24 * 24 * 3);
    std::vector<std::int32_t> labels(8);
    source.fill(0, 0, labelled(source, images.data(), labels.data()));
    Training<Synchronized> training({.replicas = 2,
                                     .devices = 2,
                                     .batch_size = 8,
                                     .other_batch_sizes = {3},
                                     .gradient_accumulation_steps = 2,
                                     .seed = 4});
    const std::vector<float> before = training.parameters();
    CHECK(message_of<InvalidArgument>([&] {
              training.step([&](std::int64_t, int replica, HostContext&) {
                  return BatchView{images.data(), labels.data(), replica == 0 ? 8 : 3, Shape{24, 24, 3}};
              });
          }) == "with synchronised statistics and accumulation every batch has batch_size samples, 8, or none, not 3");
    CHECK(training.parameters() == before);
}

TEST_CASE(
    "an inspector of synchronised replicas sees values that are normalised by the statistics of the whole batch") {
    const auto logits_of = [](auto& training, int replicas, std::int64_t batch) {
        auto batches = batches_of(replicas, batch);
        std::vector<std::vector<float>> outputs;
        training.step(batches, [&](const Inspection<Host>& inspection) {
            inspection.for_each_activation([&](std::size_t, std::span<const float> values) {
                outputs.emplace_back(values.begin(), values.end());
            });
        });
        return outputs;
    };
    Training<Synchronized> many({.replicas = 2, .devices = 2, .batch_size = batch_size, .seed = 4});
    Training<Synchronized> one({.batch_size = 2 * batch_size, .seed = 4});
    Training<FirstReplica> apart({.replicas = 2, .devices = 2, .batch_size = batch_size, .seed = 4});
    const auto of_many = logits_of(many, 2, batch_size), of_one = logits_of(one, 1, 2 * batch_size),
               of_apart = logits_of(apart, 2, batch_size);
    REQUIRE(of_many.size() == of_one.size());
    // The first replica's half of the whole batch, which is the whole batch's first half.
    for (std::size_t layer = 0; layer < of_many.size(); ++layer) {
        CAPTURE(layer);
        const std::vector<float> half(of_one[layer].begin(),
                                      of_one[layer].begin() + static_cast<std::ptrdiff_t>(of_many[layer].size()));
        CHECK(tutorial::difference(of_many[layer], half) < 1e-5);
    }
    CHECK(tutorial::difference(of_apart.back(), of_many.back()) > 1e-3);
}

TEST_CASE("running statistics are part of the state, and evaluation uses them") {
    Training<FirstReplica> training({.replicas = 2, .batch_size = batch_size, .seed = 4});
    auto batches = batches_of(2, batch_size);
    for (int step = 0; step < 3; ++step) training.step(batches);
    EvaluationBatches test(tutorial::sample().test, CenterCrop{}, batch_size, 1);
    const double loss = training.evaluate(test, 3).loss;
    TrainingState state = training.state();
    Training<FirstReplica> other({.replicas = 2, .batch_size = batch_size, .seed = 5});
    other.restore(state);
    CHECK(other.evaluate(test, 3).loss == loss);
    state.buffers.assign(state.buffers.size(), 1.0F);
    other.restore(state);
    CHECK(other.evaluate(test, 3).loss != loss);
}

TEST_CASE("an error or a number that is not finite on one synchronised replica stops no other") {
    Training<Synchronized> training({.replicas = 3, .devices = 3, .batch_size = batch_size, .seed = 4});
    auto batches = batches_of(3, batch_size);
    const std::vector<float> before = training.parameters();
    CHECK(contains(message_of<DataError>([&] {
                       training.step([&](std::int64_t step, int replica, HostContext& context) {
                           require<DataError>(replica != 1, "replica 1 has no batch");
                           return batches(step, replica, context);
                       });
                   }),
                   "replica 1 has no batch"));
    CHECK(training.parameters() == before);
    std::vector<float> images(static_cast<std::size_t>(batch_size * 24 * 24 * 3),
                              std::numeric_limits<float>::infinity());
    const std::vector<std::int32_t> labels(static_cast<std::size_t>(batch_size), 1), no_classes(labels.size(), 10);
    // The gradient of a label that is no class is one of numbers.
    CHECK(contains(message_of<InvalidArgument>([&] {
                       training.step([&](std::int64_t step, int replica, HostContext& context) {
                           BatchView batch = batches(step, replica, context);
                           if (replica == 1) batch.set_data(1, no_classes.data());
                           return batch;
                       });
                   }),
                   "sample 0 of the batch has label 10"));
    CHECK(training.parameters() == before);
    // The merged statistics make every replica's loss no number.
    try {
        training.step([&](std::int64_t step, int replica, HostContext& context) {
            return replica == 2 ? BatchView{images.data(), labels.data(), batch_size, Shape{24, 24, 3}}
                                : batches(step, replica, context);
        });
        FAIL("the step was made");
    } catch (const DivergedError& error) {
        CHECK(contains(error.what(), "the loss of replica 2 is nan at step 0: sample 0 of its batch is not finite"));
        CHECK(error.replica == 2);
    }
    CHECK(training.parameters() == before);
    training.step(batches);
    CHECK(training.step() == 1);
}

TEST_CASE("a training in which batch normalisation would see one value per channel is refused at the start") {
    struct OnePixel : Sequential<Input<2, 2, 3>, Named<"conv1", Conv2d<4, 2, valid>>, Named<"bn1", BatchNorm2d<>>, ReLU,
                                 Flatten, Linear<3>> {};
    using Apart = DataParallel<OnePixel, CrossEntropy<3>, Sgd, ConcatMean, Host>;
    using Together = DataParallel<OnePixel, CrossEntropy<3>, Sgd, ConcatMean, Host, Synchronized>;
    // Compilers print the type with or without its default arguments.
    const std::string refused = message_of<InvalidArgument>([] { Apart({.replicas = 2, .batch_size = 1}); });
    CHECK(refused.starts_with("layer 2 (bn1, BatchNorm2d<"));
    CHECK(
        refused.ends_with(">) has one value per channel in a batch, whose mean is that value: its samples are "
                          "1 x 1 x 4 and batch_size is 1; a training needs at least 2 values"));
    CHECK(contains(message_of<InvalidArgument>([] { Apart({.batch_size = 2, .other_batch_sizes = {1}}); }),
                   "other_batch_sizes contains 1;"));
    CHECK(contains(message_of<InvalidArgument>([] { Together({.replicas = 1, .batch_size = 1}); }),
                   "has one value per channel in the batches of all replicas together,"));

    // Running statistics need no batch: those of a frozen layer, and those of an evaluation.
    const std::vector<float> samples(24, 0.5F);
    const std::vector<std::int32_t> labels{0, 1};
    const BatchView one{samples.data(), labels.data(), 1, Shape{2, 2, 3}};
    struct FrozenNorm : Frozen<OnePixel, "bn1.*"> {};
    DataParallel<FrozenNorm, CrossEntropy<3>, Sgd, ConcatMean, Host> frozen({.batch_size = 1});
    CHECK(frozen.step(std::span(&one, 1)).samples == 1);
    Apart two({.batch_size = 2});
    CHECK(two.evaluate([&](std::int64_t, int, HostContext&) { return one; }, 1).samples == 1);

    // Synchronised replicas count together, in each step.
    Together both({.replicas = 2, .devices = 2, .batch_size = 1});
    const std::vector<float> before = both.parameters();
    const BatchView batches[] = {one, one}, half[] = {one, {}};
    CHECK(both.step(batches).samples == 2);
    both.set_parameters(before);
    CHECK(contains(message_of<InvalidArgument>([&] { both.step(half); }),
                   "a batch normalisation has one value per channel in the batches of all replicas together"));
    CHECK(both.parameters() == before);
    CHECK(both.healthy());
    CHECK(both.step(batches).samples == 2);
}
