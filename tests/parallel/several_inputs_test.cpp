// SPDX-License-Identifier: Apache-2.0
//
// A training of a network with two inputs equals that of the network whose one input has the channels of both: steps, of every
// kind, evaluations and predictions.
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>
#include <cupola/predict.hpp>

#include "delayed_device.hpp"
#include "throws_with.hpp"

namespace {

struct Two : Sequential<Input<1, 1, 5>, Keep<"first">, FromInput<"age", 1, 1, 4>, Keep<"age">, From<"first">,
                        ConcatWith<"age">, Named<"conv", Conv2d<7, 1>>, Named<"norm", BatchNorm2d<>>, ReLU, Flatten,
                        Named<"end", Linear<3>>> {};
struct One : Sequential<Input<1, 1, 9>, Named<"conv", Conv2d<7, 1>>, Named<"norm", BatchNorm2d<>>, ReLU, Flatten,
                        Named<"end", Linear<3>>> {};

template <class Net, class D = Host, class Statistics = FirstReplica>
using TrainingOf = DataParallel<Net, CrossEntropy<3>, Sgd, ConcatMean, D, Statistics>;

constexpr std::int64_t count = 12;

struct Samples {
    std::vector<float> first = std::vector<float>(count * 5), age = std::vector<float>(count * 4), all;
    std::vector<std::int32_t> kinds = std::vector<std::int32_t>(count);

    Samples() {
        initialize(first, normal(1.0), 1, 1, 3, 0);
        initialize(age, normal(1.0), 1, 1, 4, 0);
        for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<std::int32_t>(i * 7 % 3);
        for (std::size_t i = 0; i < kinds.size(); ++i) {
            all.insert(all.end(), first.data() + i * 5, first.data() + i * 5 + 5);
            all.insert(all.end(), age.data() + i * 4, age.data() + i * 4 + 4);
        }
    }
    template <class Net>
    [[nodiscard]] BatchView view(std::int64_t begin, std::int64_t size) const {
        if constexpr (count_inputs(Net::layers) == 1) {
            return {all.data() + begin * 9, kinds.data() + begin, size, One::input_shape};
        } else {
            return {size,
                    {{{"age", ElementType::float32, {1, 1, 4}}, age.data() + begin * 4},
                     {{"target", ElementType::int32, {1}}, kinds.data() + begin},
                     {{"input", ElementType::float32, {1, 1, 5}}, first.data() + begin * 5}}};
        }
    }
};

struct Outcome {
    std::vector<double> losses;
    std::vector<float> parameters, activations;
    double evaluation = 0;
    std::vector<float> prediction;
};

/// Three steps, of which the last is inspected, an evaluation and a prediction.
template <class Net, class Training>
Outcome outcome_of(int replicas, int devices, int parts) {
    const Samples samples;
    typename Training::Options options;
    options.replicas = replicas;
    options.devices = devices;
    options.gradient_accumulation_steps = parts;
    options.batch_size = count / (replicas * parts);
    options.evaluation_batch_size = count;
    options.seed = 2;
    options.optimizer = {.learning_rate = 0.1};
    Training training(options);
    Outcome outcome;
    const auto batches = [&](std::int64_t place, int replica, HostContext&) {
        return samples.view<Net>((replica * parts + place % parts) * options.batch_size, options.batch_size);
    };
    for (int step = 0; step < 2; ++step) outcome.losses.push_back(training.step(batches).loss);
    outcome.losses.push_back(training
                                 .step(batches,
                                       [&](const typename Training::InspectionType& shown) {
                                           shown.for_each_activation([&](std::size_t layer, std::span<const float> v) {
                                               if (Net::layers[layer].name == "end")
                                                   outcome.activations.assign(v.begin(), v.end());
                                           });
                                       })
                                 .loss);
    outcome.parameters = training.parameters();
    outcome.evaluation =
        training.evaluate([&](std::int64_t i, int, HostContext&) { return samples.view<Net>(4 * i, 4); }, 3).loss;
    outcome.prediction = training.predict(samples.view<Net>(1, count - 1));
    return outcome;
}

template <class Training, class TrainingOfOne>
void equal(int replicas, int devices, int parts) {
    CAPTURES(replicas, devices, parts);
    const Outcome two = outcome_of<Two, Training>(replicas, devices, parts),
                  one = outcome_of<One, TrainingOfOne>(replicas, devices, parts);
    CHECK(two.losses == one.losses);
    CHECK(two.parameters == one.parameters);
    CHECK(two.evaluation == one.evaluation);
    CHECK(two.prediction == one.prediction);
    CHECK(two.activations == one.activations);
    CHECK(!one.activations.empty());
    CHECK(two.losses[2] < two.losses[0]);
}

}  // namespace

TEST_CASE("a network with two inputs trains like the network with the channels of both, bit by bit") {
    equal<TrainingOf<Two>, TrainingOf<One>>(1, 1, 1);
    equal<TrainingOf<Two>, TrainingOf<One>>(2, 2, 2);
    equal<TrainingOf<Two, Delayed>, TrainingOf<One, Delayed>>(2, 1, 2);
    equal<TrainingOf<Two, Host, Synchronized>, TrainingOf<One, Host, Synchronized>>(2, 2, 1);
}

TEST_CASE("fit and evaluate take the columns from a data set, through Prefetch too") {
    const Samples samples;
    const InMemory data(Two::input_shape, samples.first,
                        {{"age", {1, 1, 4}, samples.age}, {"target", {1}, samples.kinds}});
    const BatchOptions options{.batch_size = 4, .seed = 1};
    const auto trained = [&](auto&& batches) {
        TrainingOf<Two> training({.batch_size = 4, .seed = 2, .optimizer = {.learning_rate = 0.1}});
        fit(training, batches, {.steps = 7});
        CHECK(evaluate(training, EvaluationBatches(data, IdentityTransform{}, 4)).samples == count);
        return training.parameters();
    };
    const auto plain = trained(InMemoryBatches(data, options));
    CHECK(plain == trained(Prefetch(TrainingBatches(data, IdentityTransform{}, options), {.workers = 2})));
    TrainingOf<Two> untrained({.batch_size = 4, .seed = 2});
    CHECK(plain != untrained.parameters());
}

TEST_CASE("a predictor takes a network's columns by name") {
    const Samples samples;
    TrainingOf<Two> training({.batch_size = count, .seed = 2});
    Checkpoint checkpoint;
    checkpoint.state = training.state();
    const std::vector<float> expected = training.predict(samples.view<Two>(0, count));
    const Predictor<Two> predictor(checkpoint, "x", {.max_batch = count});
    for (const std::int64_t size : {1, 3, 11}) {
        std::vector<float> outputs(static_cast<std::size_t>(size) * 3);
        predictor.predict(samples.view<Two>(1, size), outputs);
        for (std::size_t i = 0; i < outputs.size(); ++i) CHECK(outputs[i] == doctest::Approx(expected[3 + i]));
    }
    std::vector<float> outputs(3);
    const auto error_of = [&](const BatchView& batch) {
        return message_of<InvalidArgument>([&] { predictor.predict(batch, outputs); });
    };
    const Column input{{"input", ElementType::float32, {1, 1, 5}}, samples.first.data()};
    CHECK(error_of(BatchView{1, {input}}) ==
          "a batch has no column age, which the network reads; the columns are: input");
    CHECK(error_of(BatchView{1, {input, {{"age", ElementType::float32, {4}}, samples.age.data()}}}) ==
          "a batch has a column age of float32 4, and the network reads float32 1 x 1 x 4");
    CHECK(error_of(samples.view<Two>(0, 2)) == "the outputs of 2 samples are 6 values, and there is room for 3");
    CHECK(error_of(samples.view<Two>(0, 0)) == "a prediction needs 1 sample or more, not 0");
}

TEST_CASE("a missing column and values that are not finite are reported by the column's name") {
    Samples samples;
    TrainingOf<Two> training({.batch_size = count, .seed = 2});
    REQUIRE(training.required_columns().size() == 3);
    CHECK(training.required_columns().back().column.name == "target");
    const std::vector<float> before = training.parameters();
    const auto step = [&] {
        const BatchView all[] = {samples.view<Two>(0, count)};
        training.step(all);
    };
    samples.age[4 * 3 + 2] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(message_of<DivergedError>(step), "column age of sample 3 of its batch is not finite"));
    CHECK(training.parameters() == before);
    CHECK(message_of<InvalidArgument>([&] {
              training.evaluate([&](std::int64_t, int, HostContext&) { return samples.view<Two>(0, 5); }, 1);
          }) == "the input of a network must be finite, but in batch 0 column age of sample 3 is nan at [0, 0, 2]");
    CHECK(message_of<InvalidArgument>([&] { (void)training.predict(samples.view<Two>(0, 5)); }) ==
          "the input of a network must be finite, but column age of sample 3 is nan at [0, 0, 2]");
    samples.age[4 * 3 + 2] = 0;
    CHECK_NOTHROW(step());
    CHECK(message_of<InvalidArgument>([&] {
              const BatchView all[] = {{samples.first.data(), samples.kinds.data(), count, Two::input_shape}};
              training.step(all);
          }) == "a batch has no column age, which the network reads; the columns are: input, target");
}

TEST_CASE("a loss reads one of the inputs") {
    using Three =
        Sequential<Input<5>, Keep<"first">, FromInput<"age", 4>, Keep<"age">, FromInput<"size", 2>, Keep<"size">,
                   From<"first">, ConcatWith<"age">, ConcatWith<"size">, Linear<4>, Output<"end">>;
    using Loss = Losses<At<"end", MeanSquaredError, "age">>;
    const auto columns = CollectionOf<Loss>::required_columns(Three::layers);
    REQUIRE(columns.size() == 3);
    CHECK(columns[0].column.name == "input");
    CHECK(columns[1].column.name == "size");
    CHECK(columns[2].column.name == "age");

    const Samples samples;
    DataParallel<Three, Loss, Sgd, ConcatMean, Host> training(
        {.batch_size = count, .seed = 2, .optimizer = {.learning_rate = 0.1}});
    const BatchView all[] = {{count,
                              {{{"input", ElementType::float32, {5}}, samples.first.data()},
                               {{"age", ElementType::float32, {4}}, samples.age.data()},
                               {{"size", ElementType::float32, {2}}, samples.all.data()}}}};
    const double before = training.step(all).loss;
    for (int step = 0; step < 20; ++step) training.step(all);
    CHECK(training.step(all).loss < 0.8 * before);
}
