// SPDX-License-Identifier: Apache-2.0
//
// A loss with weights: replicas, and batches whose gradients are added up, count by the sum of their samples' weights and not
// by their number. Several replicas of different weights equal one that has all samples.
#include <cupola/loss/weighted_cross_entropy.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "delayed_device.hpp"
#include "largest_difference.hpp"
#include "loss/squares.hpp"
#include "policies.hpp"
#include "throws_with.hpp"

namespace {

struct ScaledLoss : Float32 {
    static constexpr float loss_scale = 1024;
};
struct Net : Sequential<Input<3>, Named<"hidden", Linear<8>>, ReLU, Named<"out", Linear<1>>> {};
struct ScaledNet : InPrecision<ScaledLoss, Net> {};

template <class N, bool counts, class A, class D>
using TrainingOf = DataParallel<N, WeightedSquares<counts>, Sgd, A, D>;

constexpr std::int64_t replicas = 4, batch = 6;

/// Samples of weights 0 to 6, of which the batches of a step have different sums.
struct Samples {
    std::vector<float> inputs = std::vector<float>(static_cast<std::size_t>(replicas * batch * 3)),
                       targets = std::vector<float>(static_cast<std::size_t>(replicas * batch * 2));
    Samples() {
        initialize(inputs, normal(1.0), 1, 1, 3, 0);
        initialize(targets, normal(1.0), 1, 1, 4, 0);
        for (std::size_t n = 0; n < targets.size() / 2; ++n)
            targets[2 * n + 1] = static_cast<float>(n / batch) * (n % 3 == 0 ? 0.0F : n % 3 == 1 ? 1.0F : 2.0F);
    }
    [[nodiscard]] BatchView view(std::int64_t first, std::int64_t size) const {
        return {inputs.data() + first * 3, {3}, targets.data() + first * 2, {2}, size};
    }
    [[nodiscard]] double weight(std::int64_t first, std::int64_t size) const {
        double sum = 0;
        for (std::int64_t n = first; n < first + size; ++n)
            sum += static_cast<double>(targets[static_cast<std::size_t>(2 * n + 1)]);
        return sum;
    }
};

struct Ended {
    std::vector<float> parameters, gradient;
    std::vector<double> losses;
};

template <class T>
Ended run(const typename T::Options& options, auto&& batches) {
    T training(options);
    Ended ended;
    for (int s = 0; s < 3; ++s) ended.losses.push_back(training.step(batches).loss);
    ended.parameters = training.parameters();
    if constexpr (requires { training.averaged_gradient(); }) ended.gradient = training.averaged_gradient();
    return ended;
}

/// One replica with the samples of all.
template <class N, bool counts>
Ended alone(const Samples& samples) {
    return run<TrainingOf<N, counts, ConcatMean, Host>>(
        {.batch_size = replicas * batch, .seed = 2, .optimizer = {.learning_rate = 0.1}},
        [&](std::int64_t, int, HostContext&) { return samples.view(0, replicas * batch); });
}

template <class N, bool counts, class A, class D>
Ended together(const Samples& samples, int devices) {
    return run<TrainingOf<N, counts, A, D>>(
        {.replicas = replicas, .devices = devices, .batch_size = batch, .seed = 2, .optimizer = {.learning_rate = 0.1}},
        [&](std::int64_t, int replica, HostContext&) { return samples.view(replica * batch, batch); });
}

void check_equal(const Ended& together, const Ended& alone) {
    CHECK(largest_difference(together.parameters, alone.parameters) < 1e-5);
    CHECK(largest_difference(together.gradient, alone.gradient) < 1e-5);
    for (std::size_t s = 0; s < alone.losses.size(); ++s)
        CHECK(together.losses[s] == doctest::Approx(alone.losses[s]).epsilon(1e-6));
}

template <class N>
void check_all_agreements() {
    const Samples samples;
    const Ended one = alone<N, true>(samples);
    for (const int devices : {1, 2, 4}) {
        CAPTURE(devices);
        check_equal(together<N, true, ConcatMean, Host>(samples, devices), one);
        check_equal(together<N, true, ConcatMean, Delayed>(samples, devices), one);
        check_equal(together<N, true, DeviceSum, Host>(samples, devices), one);
        check_equal(together<N, true, DeviceSum, Delayed>(samples, devices), one);
    }
    // By samples alone the replicas of a small weight would count as much as the others.
    CHECK(largest_difference(together<N, false, ConcatMean, Host>(samples, 2).gradient, one.gradient) > 1e-2);
}

}  // namespace

TEST_CASE("four replicas of different weights equal one replica with all samples, with every agreement") {
    check_all_agreements<Net>();
}

TEST_CASE("the weights count beside a loss scale") { check_all_agreements<ScaledNet>(); }

TEST_CASE("batches of different weights and sizes whose gradients are added up equal one batch of all") {
    const Samples samples;
    const Ended one = alone<Net, true>(samples);
    const auto check = [&]<class A, class D>() {
        const Ended parts = run<TrainingOf<Net, true, A, D>>(
            {.replicas = 2,
             .devices = 2,
             .batch_size = 8,
             .other_batch_sizes = {4},
             .gradient_accumulation_steps = 3,
             .seed = 2,
             .optimizer = {.learning_rate = 0.1}},
            [&](std::int64_t place, int replica, HostContext&) {
                // 8, 4 and none of the replica's 12
                const std::int64_t part = place % 3;
                return part == 2 ? BatchView{} : samples.view(replica * 12 + part * 8, part == 0 ? 8 : 4);
            });
        check_equal(parts, one);
    };
    check.template operator()<ConcatMean, Host>();
    check.template operator()<ConcatMean, Delayed>();
    check.template operator()<DeviceSum, Delayed>();
}

TEST_CASE("a replica's report and gradient are of the mean by weights") {
    const Samples samples;
    TrainingOf<Net, true, ConcatMean, Host> training({.replicas = replicas, .batch_size = batch, .seed = 2});
    const std::vector<BatchView> batches{samples.view(0, batch), samples.view(batch, batch),
                                         samples.view(2 * batch, batch), samples.view(3 * batch, batch)};
    const StepReport report = training.step(batches);
    CHECK(report.samples == replicas * batch);
    CHECK(report.weight == doctest::Approx(samples.weight(0, replicas * batch)));
    CHECK(report.replicas[0].weight == 0);  // its samples do not count
    CHECK(report.replicas[0].total == 0);
    CHECK(report.replicas[0].correct == 0);
    for (int r = 1; r < replicas; ++r) {
        CAPTURE(r);
        CHECK(report.replicas[static_cast<std::size_t>(r)].weight == doctest::Approx(samples.weight(r * batch, batch)));
        TrainingOf<Net, true, ConcatMean, Host> single({.batch_size = batch, .seed = 2});
        const BatchView own[] = {samples.view(r * batch, batch)};
        CHECK(single.step(own).loss == doctest::Approx(report.replicas[static_cast<std::size_t>(r)].total));
        CHECK(largest_difference(training.gradient(r), single.gradient(0)) < 1e-5);
    }
}

TEST_CASE(
    "the loss of a step counts the samples of a replica whose labels all have the weight 0, as one replica does") {
    struct Classes : Sequential<Input<3>, Named<"out", Linear<2>>> {};
    using Loss = LossCollection<WeightedCrossEntropy<2>, WeightDecay<0.1, "out">>;
    const Samples samples;
    const std::vector<std::int32_t> labels{0, 0, 0, 0, 1, 0};  // of two replicas; class 0 has no weight
    const auto view = [&](std::int64_t first, std::int64_t size) {
        return BatchView{samples.inputs.data() + first * 3, labels.data() + first, size, {3}};
    };
    // Label smoothing gives each sample a loss of class 1.
    const Loss loss{.data = {.label_smoothing = 0.1F, .class_weights = {0, 2}}};
    DataParallel<Classes, Loss, Sgd, ConcatMean, Host> one({.batch_size = 6, .seed = 2, .loss = loss}),
        two({.replicas = 2, .batch_size = 3, .seed = 2, .loss = loss});
    const BatchView all[] = {view(0, 6)}, halves[] = {view(0, 3), view(3, 3)};
    const StepReport at_once = one.step(all), report = two.step(halves);
    CHECK(report.loss == doctest::Approx(at_once.loss));
    REQUIRE(report.parts.size() == 2);
    double sum = 0;
    for (std::size_t p = 0; p < 2; ++p) {
        CHECK(report.parts[p].name == at_once.replicas[0].parts[p].name);
        CHECK(report.parts[p].value == doctest::Approx(at_once.replicas[0].parts[p].value));
        CHECK(at_once.parts[p].value == doctest::Approx(at_once.replicas[0].parts[p].value));
        sum += report.parts[p].value;
    }
    CHECK(report.loss == doctest::Approx(sum));
    CHECK(report.replicas[0].weight == 0);
    CHECK(report.replicas[0].parts[0].value > 0);
    CHECK(report.replicas[0].parts[1].value == doctest::Approx(at_once.replicas[0].parts[1].value));
    // The mean over all samples, whose weights add up to those of one of class 1.
    CHECK(report.weight == 2);
    CHECK(report.parts[0].value ==
          doctest::Approx((3 * report.replicas[0].parts[0].value + 2 * report.replicas[1].parts[0].value) / 2));
}

TEST_CASE("an evaluation's loss is the mean by weights") {
    const Samples samples;
    TrainingOf<Net, true, ConcatMean, Host> training({.batch_size = replicas * batch, .seed = 2});
    const auto parts = [&](std::int64_t i, int, HostContext&) { return samples.view(i * batch, batch); };
    const auto whole = [&](std::int64_t, int, HostContext&) { return samples.view(0, replicas * batch); };
    const Evaluation in_parts = training.evaluate(parts, replicas), at_once = training.evaluate(whole, 1);
    CHECK(in_parts.weight == doctest::Approx(samples.weight(0, replicas * batch)));
    CHECK(in_parts.loss == doctest::Approx(at_once.loss));
    const BatchView all[] = {samples.view(0, replicas * batch)};
    CHECK(training.step(all).loss == doctest::Approx(at_once.loss));
    CHECK(message_of<InvalidArgument>([&] { (void)training.evaluate(parts, 1); }) ==
          "the weights of all 6 samples of the evaluation are 0");
}

TEST_CASE("each replica's own update is with its mean by weights") {
    const Samples samples;
    const auto loss_after = [&](auto&& view, auto options) {
        TrainingOf<Net, true, LocalSgd, Host> training(options);
        for (int s = 0; s < 2; ++s) training.step(view);
        return training.state();
    };
    const TrainingState state =
        loss_after([&](std::int64_t, int replica, HostContext&) { return samples.view((replica + 1) * batch, batch); },
                   TrainingOf<Net, true, LocalSgd, Host>::Options{
                       .replicas = 2, .batch_size = batch, .seed = 2, .averaging = {.every = 9}});
    TrainingOf<Net, true, ConcatMean, Host> alone({.batch_size = batch, .seed = 2});
    const BatchView own[] = {samples.view(batch, batch)};
    for (int s = 0; s < 2; ++s) alone.step(own);
    CHECK(largest_difference(state.replicas[0].parameters, alone.parameters()) < 1e-6);
}

TEST_CASE("a replica whose samples all have the weight 0 has no update of its own, which the error says") {
    const Samples samples;
    for (const int devices : {1, 2}) {
        CAPTURE(devices);
        TrainingOf<Net, true, LocalSgd, Host> training(
            {.replicas = 2, .devices = devices, .batch_size = batch, .seed = 2});
        const std::vector<ReplicaState> before = training.state().replicas;
        CHECK(
            message_of<InvalidArgument>([&] {
                training.step([&](std::int64_t, int replica, HostContext&) {
                    return samples.view((1 - replica) * batch, batch);
                });
            }) ==
            "no sample of replica 1 in step 0 counts, of 6: all their weights are 0; Periodic updates each replica with its own "
            "samples");
        CHECK(training.state().replicas == before);
        CHECK(training
                  .step([&](std::int64_t, int replica, HostContext&) {
                      return samples.view((1 + replica) * batch, batch);
                  })
                  .weight > 0);
    }
}

TEST_CASE("a replica whose samples have a negative weight is rejected, and changes nothing") {
    Samples samples;
    for (std::int64_t n = 0; n < 3; ++n) samples.targets[static_cast<std::size_t>(2 * (3 + n) + 1)] = -2;
    TrainingOf<Net, true, ConcatMean, Host> training({.replicas = 2, .batch_size = 3, .seed = 2});
    const std::vector<float> before = training.parameters();
    const auto of_step = [&](std::int64_t, int replica, HostContext&) { return samples.view(6 - 3 * replica, 3); };
    CHECK(message_of<InvalidArgument>([&] { training.step(of_step); }) ==
          "the weights of the samples of replica 1 in step 0 add up to -6; a weight must be 0 or more");
    CHECK(training.parameters() == before);
}

TEST_CASE("a step whose samples all have the weight 0 is rejected, and changes nothing") {
    const Samples samples;
    const auto check = [&]<class A, class D>(int devices) {
        TrainingOf<Net, true, A, D> training({.replicas = 2, .devices = devices, .batch_size = 3, .seed = 2});
        const std::vector<float> before = training.parameters();
        CHECK(message_of<InvalidArgument>([&] {
                  training.step([&](std::int64_t, int replica, HostContext&) { return samples.view(replica * 3, 3); });
              }) ==
              "no sample of step 0 counts, of 3 on replica 0, 3 on replica 1: all their weights are 0; the option "
              "skip_steps_without_labels lets such a step pass without an update");
        CHECK(training.parameters() == before);
        CHECK(
            training.step([&](std::int64_t, int replica, HostContext&) { return samples.view(batch + replica * 3, 3); })
                .weight > 0);
        CHECK(training.parameters() != before);
    };
    check.template operator()<ConcatMean, Host>(1);
    check.template operator()<ConcatMean, Host>(2);
    check.template operator()<ConcatMean, Delayed>(2);
    check.template operator()<DeviceSum, Host>(2);
}

TEST_CASE(
    "a single replica, whose average is its gradient, trains on after a step without weight or with a bad label") {
    struct Classes : Sequential<Input<3>, Linear<3>> {};
    const Samples samples;
    const std::vector<std::int32_t> labels{0, 1, 2}, ignored{-1, -1, -1}, bad{0, 7, 1};
    const auto check = [&]<class D>() {
        DataParallel<Classes, WeightedCrossEntropy<3>, Sgd, ConcatMean, D> training(
            {.batch_size = 3, .seed = 2, .loss = {.data = {.ignored_label = -1}}});
        const std::vector<float> before = training.parameters();
        const auto step = [&](const std::vector<std::int32_t>& of) {
            const BatchView batches[] = {BatchView(samples.inputs.data(), of.data(), 3, {3})};
            training.step(batches);
        };
        CHECK(message_of<InvalidArgument>([&] { step(ignored); }) ==
              "no sample of step 0 counts, of 3 on replica 0: all their labels are -1, the ignored_label of "
              "weighted_cross_entropy; the option skip_steps_without_labels lets such a step pass without an update");
        CHECK(contains(message_of<InvalidArgument>([&] { step(bad); }), "sample 1 of the batch has label 7"));
        CHECK(training.parameters() == before);
        step(labels);
        CHECK(training.parameters() != before);
    };
    check.template operator()<Host>();
    check.template operator()<Delayed>();
}

namespace {

/// Classes 0 to 2; -1 is ignored.
struct Normalized : Sequential<Input<1, 1, 3>, Named<"hidden", Conv2d<4, 1>>, Named<"norm", BatchNorm2d<>>, ReLU,
                               Flatten, Named<"out", Linear<3>>> {};
struct ScaledNormalized : InPrecision<ScaledLoss, Normalized> {};

const std::vector<std::int32_t> labelled{0, 1, 2, 2, 1, 0}, unlabelled(6, -1), half{-1, -1, -1, 2, 1, 0};

template <class N, class A, class D>
using SkippingOf = DataParallel<N, WeightedCrossEntropy<3>, Adam, A, D>;

template <class T>
typename T::Options skipping(int count, int devices) {
    return {.replicas = count,
            .devices = devices,
            .batch_size = 6 / count,
            .seed = 2,
            .loss = {.data = {.ignored_label = -1}},
            .optimizer = {.learning_rate = 0.01},
            .moving_average = {.decay = 0.9},
            .skip_steps_without_labels = true};
}

/// Queues a step of each list of labels, and returns the reports.
template <class T>
std::vector<StepReport> steps_of(T& training, std::vector<const std::vector<std::int32_t>*> labels, int count) {
    const Samples samples;
    const std::int64_t first = training.step(), size = 6 / count;
    std::vector<StepReport> reports;
    const auto batches = [&](std::int64_t step, int replica, auto&) {
        return BatchView(samples.inputs.data() + replica * size * 3,
                         labels[static_cast<std::size_t>(step - first)]->data() + replica * size, size, {1, 1, 3});
    };
    for (std::size_t s = 0; s < labels.size(); ++s) {
        training.queue(batches);
        while (const StepReport* report = training.poll_report(T::max_steps_in_flight - 1)) reports.push_back(*report);
    }
    while (const StepReport* report = training.poll_report(0)) reports.push_back(*report);
    return reports;
}

void check_same(const TrainingState& a, const TrainingState& b) {
    CHECK(a.parameters == b.parameters);
    REQUIRE(a.optimizer.size() == b.optimizer.size());
    for (std::size_t i = 0; i < a.optimizer.size(); ++i) CHECK(a.optimizer[i].values == b.optimizer[i].values);
    CHECK(a.averages == b.averages);
    CHECK(a.buffers == b.buffers);
}

template <class N, class A, class D>
void check_skips(int count, int devices) {
    CAPTURES(count, devices);
    using T = SkippingOf<N, A, D>;
    auto options = skipping<T>(count, devices);
    T training(options), without(options);
    const std::vector<StepReport> reports =
        steps_of(training, {&labelled, &unlabelled, &unlabelled, &labelled, &labelled}, count);
    steps_of(without, {&labelled, &labelled, &labelled}, count);
    REQUIRE(reports.size() == 5);
    for (std::size_t s = 0; s < 5; ++s) {
        CAPTURE(s);
        const bool skipped = s == 1 || s == 2;
        CHECK(reports[s].skipped == skipped);
        CHECK(reports[s].skipped_steps == (s == 0 ? 0 : s == 1 ? 1 : 2));
        CHECK(reports[s].samples == 6);
        CHECK(reports[s].weight == (skipped ? 0 : 6));
        CHECK((reports[s].loss == 0) == skipped);
    }
    // As if the steps had not been.
    const TrainingState state = training.state();
    CHECK(state.step == 5);
    REQUIRE(state.loss_scale);
    CHECK(state.loss_scale->skipped_steps == 2);
    check_same(state, without.state());
    CHECK(training.healthy());
}

}  // namespace

TEST_CASE("by an option a step whose labels are all ignored passes without an update") {
    for (const int devices : {1, 2}) {
        check_skips<Normalized, ConcatMean, Host>(2, devices);
        check_skips<Normalized, ConcatMean, Delayed>(2, devices);
        check_skips<Normalized, DeviceSum, Host>(2, devices);
    }
    check_skips<Normalized, DeviceSum, Delayed>(2, 2);
    check_skips<ScaledNormalized, ConcatMean, Host>(2, 2);
    // A single replica's average is its gradient, divided in place.
    check_skips<Normalized, ConcatMean, Host>(1, 1);
    check_skips<Normalized, ConcatMean, Delayed>(1, 1);
}

TEST_CASE("under a dynamic loss scale a step without labels is skipped by the option and leaves the scale") {
    using T = SkippingOf<Normalized, ConcatMean, Delayed>;
    auto options = skipping<T>(2, 2);
    options.loss_scale = LossScale{.initial = 1024, .interval = 2};
    T training(options);
    const std::vector<StepReport> reports = steps_of(training, {&labelled, &unlabelled, &labelled, &labelled}, 2);
    CHECK(reports[1].skipped);
    CHECK(reports[2].loss_scale == 1024);
    CHECK(reports[3].loss_scale == 2048);
    options.skip_steps_without_labels = false;
    T refusing(options);
    CHECK(contains(message_of<InvalidArgument>([&] { steps_of(refusing, {&unlabelled}, 2); }), "no sample of step 0"));
}

TEST_CASE(
    "with the option a step of which one replica has labels is as without, and a run resumes over a skipped step") {
    using T = SkippingOf<Normalized, ConcatMean, Host>;
    auto options = skipping<T>(2, 1);
    T training(options), resumed(options);
    CHECK(!steps_of(training, {&half}, 2)[0].skipped);
    steps_of(training, {&labelled, &unlabelled}, 2);
    resumed.restore(training.state());
    steps_of(training, {&half, &labelled}, 2);
    steps_of(resumed, {&half, &labelled}, 2);
    check_same(training.state(), resumed.state());
    options.skip_steps_without_labels = false;
    T without(options);
    steps_of(without, {&half, &labelled, &half, &labelled}, 2);
    check_same(training.state(), without.state());
}

TEST_CASE("the option lets neither a label that is not a class nor weights that add up to 0 pass") {
    using T = SkippingOf<Normalized, ConcatMean, Delayed>;
    for (const int devices : {1, 2}) {
        T training(skipping<T>(2, devices));
        const std::vector<std::int32_t> bad{-1, -1, -1, -1, 7, -1};
        const TrainingState before = training.state();
        CHECK(contains(message_of<InvalidArgument>([&] {
                           steps_of(training, {&bad, &labelled, &labelled}, 2);
                       }),
                       "sample 1 of the batch has label 7"));
        check_same(training.state(), before);
        CHECK(!steps_of(training, {&labelled}, 2)[0].skipped);
    }
    Samples samples;
    for (std::size_t n = 0; n < samples.targets.size() / 2; ++n) samples.targets[2 * n + 1] = n < 3 ? 1.0F : -1.0F;
    TrainingOf<Net, true, ConcatMean, Host> training(
        {.replicas = 2, .devices = 2, .batch_size = 3, .seed = 2, .skip_steps_without_labels = true});
    const std::vector<float> before = training.parameters();
    CHECK(message_of<InvalidArgument>([&] {
              training.step([&](std::int64_t, int replica, HostContext&) { return samples.view(replica * 3, 3); });
          }) == "the weights of the samples of replica 1 in step 0 add up to -3; a weight must be 0 or more");
    CHECK(training.parameters() == before);
}
