// SPDX-License-Identifier: Apache-2.0
//
// A training continues from its state, bit for bit; moving averages and accumulated batches are what they are defined as.
// Covers: cupola/parallel/state_transfer.hpp
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/data/augmentation.hpp>
#include <cupola/models/tutorial_augmentation.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "../data/labelled.hpp"
#include "throws_with.hpp"
#include "tutorial.hpp"

namespace {

using Training = tutorial::SmallTraining<ConcatMean, Sgd>;
constexpr std::int64_t batch_size = 8;

auto batches_of(int replicas, std::int64_t batch) {
    return Prefetch(TrainingBatches(tutorial::sample().train, TutorialAugmentation{},
                                    {.batch_size = batch, .replicas = replicas, .seed = 4}));
}

Training::Options options(int replicas = 2) {
    return {.replicas = replicas,
            .batch_size = batch_size,
            .seed = 4,
            .optimizer = {.learning_rate = 0.05, .momentum = 0.9},
            .moving_average = {.decay = 0.99}};
}

/// Makes a parameter infinite in step 0.
struct Ruining : Sgd {
    void update(const Update<Host>& u) const {
        update_parameters(static_cast<const Sgd&>(*this), u);
        const LayerInfo& conv2 = tutorial::SmallNet::layers[4];
        REQUIRE(conv2.name == "conv2");
        if (u.step == 0) u.parameters[conv2.offsets[1]] = std::numeric_limits<float>::infinity();
    }
};

}  // namespace

TEST_CASE("a training restored from a state goes on with the same bits") {
    Training whole(options()), first(options());
    auto batches = batches_of(2, batch_size), batches_of_first = batches_of(2, batch_size);
    for (int step = 0; step < 7; ++step) whole.step(batches);
    for (int step = 0; step < 3; ++step) first.step(batches_of_first);
    const TrainingState between = first.state();
    CHECK(between.step == 3);

    Training second({.replicas = 2,
                     .devices = 2,
                     .batch_size = batch_size,
                     .seed = 4,
                     .optimizer = options().optimizer,
                     .moving_average = options().moving_average});
    second.restore(between);
    auto batches_of_second = batches_of(2, batch_size);
    for (int step = 3; step < 7; ++step) second.step(batches_of_second);
    const TrainingState a = whole.state(), b = second.state();
    CHECK(a.step == b.step);
    CHECK(a.parameters == b.parameters);
    CHECK(a.averages == b.averages);
    CHECK(a.optimizer == b.optimizer);
}

TEST_CASE(
    "moving averages follow the update: average = d * average + (1 - d) * new parameters, d = min(decay, (1+n)/(10+n))") {
    Training training(options());
    auto batches = batches_of(2, batch_size);
    std::vector<float> expected = training.parameters();
    for (int step = 0; step < 5; ++step) {
        training.step(batches);
        const std::vector<float> parameters = training.parameters();
        const double d = std::min(0.99, (2.0 + step) / (11.0 + step));
        for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] =
                static_cast<float>(d * static_cast<double>(expected[i]) + (1 - d) * static_cast<double>(parameters[i]));
        }
    }
    CHECK(tutorial::difference(training.state().averages, expected) < 1e-6);
    CHECK(tutorial::difference(training.parameters(), expected) > 1e-3);
}

TEST_CASE("evaluation runs with the moving averages when asked") {
    Training training(options());
    auto batches = batches_of(2, batch_size);
    for (int step = 0; step < 5; ++step) training.step(batches);
    EvaluationBatches test(tutorial::sample().test, CenterCrop{}, batch_size, 1);
    const double trained = training.evaluate(test, 3).loss,
                 averaged = training.evaluate(test, 3, Weights::averages).loss;
    CHECK(trained != averaged);
    training.set_parameters(training.state().averages);
    CHECK(training.evaluate(test, 3).loss == averaged);

    Training without({.batch_size = batch_size});
    CHECK(contains(message_of<InvalidArgument>([&] { (void)without.evaluate(test, 1, Weights::averages); }),
                   "keeps no moving averages"));
}

TEST_CASE("a state of another network, optimiser or average is rejected with its numbers") {
    Training training(options());
    TrainingState state = training.state();
    state.parameters.pop_back();
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }), "parameter arena has"));
    state = training.state();
    state.averages.pop_back();
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }), "moving average has"));
    state.averages.clear();
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }),
                   "this training keeps moving averages, and the state has none"));
    Training without({.batch_size = batch_size, .optimizer = {.momentum = 0.9}});
    CHECK(contains(message_of<InvalidArgument>([&] { without.restore(training.state()); }),
                   "this training keeps no moving averages, and the state has them"));
    state = training.state();
    state.optimizer.clear();
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }),
                   "this optimiser keeps momentum_buffer, and the state has none"));
    state = training.state();
    state.optimizer[0].name = "square_avg";
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }),
                   "this optimiser keeps momentum_buffer, and the state has square_avg"));
    Training plain({.batch_size = batch_size});
    state = plain.state();
    state.optimizer.push_back({.values = state.parameters});
    CHECK(contains(message_of<InvalidArgument>([&] { plain.restore(state); }),
                   "this optimiser keeps no state, and the state has one without a name"));
    state = training.state();
    state.optimizer[0].values.pop_back();
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }), "optimiser's state arena has"));
    state = training.state();
    state.step = -1;
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }), "must be 0 or later, not -1"));
    state.step = (std::int64_t{1} << 40) + 1;
    CHECK(contains(message_of<InvalidArgument>([&] { training.restore(state); }),
                   "the step of a training must be at most 1099511627776, not 1099511627777"));
    state.step = std::int64_t{1} << 40;
    CHECK_NOTHROW(training.restore(state));
}

TEST_CASE("a state of another network is rejected with the first parameter that differs, and both extents") {
    struct Net : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<3, 1>>, BatchNorm2d<>, ReLU, Flatten,
                            Named<"fc", Linear<2>>> {};
    // Arenas are padded: with so few elements these have the same sizes.
    struct Wider : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<4, 1>>, BatchNorm2d<>, ReLU, Flatten,
                              Named<"fc", Linear<2>>> {};
    struct MoreClasses : Sequential<Input<2, 2, 2>, Named<"first", Conv2d<3, 1>>, BatchNorm2d<>, ReLU, Flatten,
                                    Named<"last", Linear<3>>> {};
    struct Shorter : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<3, 1>>, ReLU, Flatten, Named<"fc", Linear<2>>> {};
    struct Renamed
        : Sequential<Input<2, 2, 2>, Named<"other", Conv2d<3, 1>>, BatchNorm2d<>, Flatten, Named<"name", Linear<2>>> {};
    static_assert(Wider::parameter_elements == Net::parameter_elements &&
                  Wider::buffer_elements == Net::buffer_elements);
    using Of = DataParallel<Net, CrossEntropy<2>, Sgd, ConcatMean, Host>;
    Of training({.batch_size = 1});
    const auto refusal = [&](const TrainingState& state) {
        return message_of<InvalidArgument>([&] { training.restore(state); });
    };
    const auto state_of = [&](std::span<const LayerInfo> layers) {
        TrainingState state = training.state();
        state.tensors = state_tensors(layers);
        return state;
    };
    CHECK(refusal(training.state()) == "(no exception)");
    const DataParallel<Wider, CrossEntropy<2>, Sgd, ConcatMean, Host>::Options wider{.batch_size = 1};
    CHECK(
        refusal(DataParallel<Wider, CrossEntropy<2>, Sgd, ConcatMean, Host>(wider).state()) ==
        "the state belongs to another network: its conv1.weight is 4 x 1 x 1 x 2, and this network's conv1.weight is 3 x 1 x 1 x 2");
    CHECK(
        refusal(state_of(MoreClasses::layers)) ==
        "the state belongs to another network: its first.weight is where this network has conv1.weight, of the same extents");
    CHECK(refusal(state_of(Shorter::layers)) ==
          "the state belongs to another network: its fc.weight is 2 x 12, and this network's 1.weight is 3");
    // Running statistics come last.
    TrainingState state = training.state();
    REQUIRE(state.tensors.size() == 8);
    state.tensors.pop_back();
    CHECK(refusal(state) == "the state belongs to another network: it has no 1.running_var, of 3");
    state = training.state();
    state.tensors.push_back({"more", Shape{5}});
    CHECK(refusal(state) == "the state belongs to another network: its more is 5, and this network has no such tensor");
    // Names are compared too, but for the numbers of layers without one; a state without names is compared by its sizes.
    CHECK(
        refusal(state_of(Renamed::layers)) ==
        "the state belongs to another network: its other.weight is where this network has conv1.weight, of the same extents");
    struct Numbered : Sequential<Input<2, 2, 2>, Named<"conv1", Conv2d<3, 1>>, ReLU, BatchNorm2d<>, Flatten,
                                 Named<"fc", Linear<2>>> {};
    CHECK(refusal(state_of(Numbered::layers)) == "(no exception)");
    state = training.state();
    state.tensors[1].name = "conv1.weight";
    CHECK(contains(refusal(state), "its conv1.weight is where this network has conv1.bias"));
    state = training.state();
    state.tensors.clear();
    CHECK(refusal(state) == "(no exception)");
}

TEST_CASE("a step that accumulates k batches has the gradient of all their samples together") {
    constexpr int parts = 3;
    Training::Options many = options();
    many.gradient_accumulation_steps = parts;
    Training accumulating(many),
        whole({.replicas = 1, .batch_size = batch_size * 2 * parts, .seed = 4, .optimizer = {.learning_rate = 0.05}});
    auto few = batches_of(2, batch_size), all = batches_of(1, batch_size * 2 * parts);
    for (int step = 0; step < 3; ++step) {
        whole.set_parameters(accumulating.parameters());
        const StepReport& report = accumulating.step(few);
        CHECK(report.samples == batch_size * 2 * parts);
        CHECK(whole.step(all).loss == doctest::Approx(report.loss).epsilon(1e-5));
        CHECK(tutorial::difference(accumulating.averaged_gradient(), whole.averaged_gradient()) < 1e-5);
    }
}

TEST_CASE("accumulated batches of unequal sizes are weighted by their samples") {
    const TrainingBatches source(tutorial::sample().train, TutorialAugmentation{},
                                 {.batch_size = 2 * batch_size, .replicas = 1, .seed = 9});
    std::vector<float> images(static_cast<std::size_t>(2 * batch_size * 24 * 24 * 3));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(2 * batch_size));
    source.fill(0, 0, labelled(source, images.data(), labels.data()));
    Training::Options two = options(1);
    two.gradient_accumulation_steps = 2;
    two.other_batch_sizes = {3};
    Training accumulating(two), whole({.batch_size = batch_size + 3, .seed = 4});
    accumulating.step([&](std::int64_t part, int, HostContext&) {
        return BatchView{images.data() + part * batch_size * 24 * 24 * 3, labels.data() + part * batch_size,
                         part == 0 ? batch_size : 3, tutorial::SmallNet::input_shape};
    });
    whole.step([&](std::int64_t, int, HostContext&) {
        return BatchView{images.data(), labels.data(), batch_size + 3, tutorial::SmallNet::input_shape};
    });
    CHECK(tutorial::difference(accumulating.averaged_gradient(), whole.averaged_gradient()) < 1e-5);
}

TEST_CASE("divergence is reported with the step, the replica and the first layer whose output is not finite") {
    tutorial::SmallTraining<ConcatMean, Ruining> training({.replicas = 2, .batch_size = batch_size, .seed = 4});
    auto batches = batches_of(2, batch_size);
    training.step(batches);
    CHECK(contains(message_of<DivergedError>([&] { training.step(batches); }),
                   "at step 1: the output of layer 5 (conv2, Conv2d<8, 3>) is the first that is not finite"));
    CHECK(training.step() == 1);

    std::vector<float> images(static_cast<std::size_t>(batch_size * 24 * 24 * 3), 0.5F);
    const std::vector<std::int32_t> labels(static_cast<std::size_t>(batch_size), 1);
    images[5 * 24 * 24 * 3 + 7] = std::numeric_limits<float>::quiet_NaN();
    Training other(options(1));
    CHECK(contains(message_of<DivergedError>([&] {
                       other.step([&](std::int64_t, int, HostContext&) {
                           return BatchView{images.data(), labels.data(), batch_size, tutorial::SmallNet::input_shape};
                       });
                   }),
                   "of replica 0"));
    CHECK(contains(message_of<DivergedError>([&] {
                       other.step([&](std::int64_t, int, HostContext&) {
                           return BatchView{images.data(), labels.data(), batch_size, tutorial::SmallNet::input_shape};
                       });
                   }),
                   "sample 5 of its batch is not finite"));
}

TEST_CASE("an inspector sees the parameters before the update, the gradient, the batch and every layer's output") {
    Training training(options(1)), blind(options(1));
    auto batches = batches_of(1, batch_size), batches_of_blind = batches_of(1, batch_size);
    const std::vector<float> before = training.parameters();
    std::vector<std::size_t> layers;
    std::vector<float> logits, seen_gradient;
    training.step(batches, [&](const Inspection<Host>& inspection) {
        CHECK(inspection.step() == 0);
        CHECK(std::equal(before.begin(), before.end(), inspection.parameters().begin()));
        seen_gradient.assign(inspection.averaged_gradient().begin(), inspection.averaged_gradient().end());
        CHECK(inspection.batch().size == batch_size);
        inspection.for_each_activation([&](std::size_t layer, std::span<const float> values) {
            layers.push_back(layer);
            CHECK(values.size() ==
                  static_cast<std::size_t>(batch_size * tutorial::SmallNet::layers[layer].output.size()));
            if (layer + 1 == tutorial::SmallNet::layers.size()) logits.assign(values.begin(), values.end());
        });
    });
    CHECK(layers.size() == tutorial::SmallNet::layers.size());
    CHECK(seen_gradient == training.averaged_gradient());

    const std::vector<float> images = [&] {
        HostContext context(0, {});
        const BatchView batch = batches_of_blind(0, 0, context);
        return std::vector<float>(batch.inputs(), batch.inputs() + batch_size * 24 * 24 * 3);
    }();
    CHECK(tutorial::difference(logits, blind.predict(TensorView<const float, Training::InputExtents>(
                                           images.data(), batch_size))) < 1e-6);
    blind.step(batches_of_blind);
    CHECK(blind.parameters() == training.parameters());
}

TEST_CASE("an exception of an inspector is thrown by the step, which all devices have completed") {
    Training training({.replicas = 2, .devices = 2, .batch_size = batch_size, .seed = 4, .check_every = 1}),
        blind(training.options);
    auto batches = batches_of(2, batch_size), batches_of_blind = batches_of(2, batch_size);
    CHECK(contains(message_of<DataError>([&] {
                       training.step(batches, [](const Inspection<Host>&) { throw DataError("the disk is full"); });
                   }),
                   "the disk is full"));
    CHECK(training.step() == 1);
    CHECK(training.healthy());
    blind.step(batches_of_blind);
    CHECK(training.parameters() == blind.parameters());
    training.step(batches);
    CHECK(training.step() == 2);
}
