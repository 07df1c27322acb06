// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/fit_options.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/data/generator.hpp>
#include <cupola/host.hpp>
#include <cupola/parallel/state_transfer.hpp>

#include "throws_with.hpp"

namespace {

struct Two : Sequential<Input<2>, Linear<8>, ReLU, Linear<2>> {};
using Training = DataParallel<Two, CrossEntropy<2>, Sgd, ConcatMean, Host>;

/// 64 points; the validation has 40 others.
struct Points {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    InMemory data;
    explicit Points(std::uint64_t seed = 1, std::uint64_t count = 64) : data(made(seed, count)) {}

private:
    InMemory made(std::uint64_t seed, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto words = RandomStream(seed, RngDomain::user, 0, i).words(0);
            values.insert(values.end(), {uniform(words[0]) - 0.5F, uniform(words[1]) - 0.5F});
            labels.push_back(values[2 * i] > values[2 * i + 1] ? 1 : 0);
        }
        return {Two::input_shape, values, labels, 2};
    }
};

struct Runs {
    Points points, others{2, 40};
    InMemoryBatches batches{points.data, {.batch_size = 12, .replicas = 2, .seed = 1}};
    EvaluationBatches<InMemory, IdentityTransform> validation{others.data, IdentityTransform{}, 12};
    Training training;

    explicit Runs(const Schedule& rate = Schedule(0.1), int accumulated = 1)
        : training({.replicas = 2,
                    .batch_size = 12,
                    .gradient_accumulation_steps = accumulated,
                    .seed = 1,
                    .optimizer = {.learning_rate = rate, .momentum = 0.9}}) {}
};

/// Records the calls of fit() to its callbacks.
struct Told {
    std::vector<std::string> calls;
    std::vector<HistoryRecord> records;
    std::vector<double> losses, rates;
    void on_step(const StepReport& report, Run&) {
        calls.push_back("step " + std::to_string(report.step));
        losses.push_back(report.loss);
        rates.push_back(report.learning_rate);
    }
    void on_record(const HistoryRecord& record, Run&) {
        calls.push_back("record " + std::to_string(record.step));
        records.push_back(record);
    }
    void on_end(Run&) { calls.emplace_back("end"); }
};

std::vector<std::int64_t> steps_of(const History& history) {
    std::vector<std::int64_t> steps;
    for (const HistoryRecord& record : history.records) steps.push_back(record.step);
    return steps;
}
std::vector<std::int64_t> epochs_of(const History& history) {
    std::vector<std::int64_t> epochs;
    for (const HistoryRecord& record : history.records) epochs.push_back(record.epoch.value_or(-1));
    return epochs;
}
using Numbers = std::vector<std::int64_t>;

/// After 10 steps the rate is so large that the loss gets worse.
Schedule spoiled_after_10() { return piecewise({10}, {0.1, 40.0}); }

}  // namespace

TEST_CASE("a run by epochs ends with the step that takes the last sample") {
    Runs by_epochs, by_steps;  // 64 samples, 24 in a step
    const History history = fit(by_epochs.training, by_epochs.batches, {.epochs = 3});
    CHECK(history.steps == 8);
    CHECK(steps_of(history) == Numbers{3, 6, 8});
    CHECK(epochs_of(history) == Numbers{1, 2, 3});
    CHECK(fit(by_steps.training, by_steps.batches, {.steps = 8}).steps == 8);
    CHECK(by_epochs.training.parameters() == by_steps.training.parameters());

    Runs accumulated(Schedule(0.1), 2);  // 48 in a step
    CHECK(steps_of(fit(accumulated.training, accumulated.batches, {.epochs = 3})) == Numbers{2, 3, 4});
    Runs prefetched;
    Prefetch source(TrainingBatches(prefetched.points.data, IdentityTransform{}, {.batch_size = 12, .replicas = 2}));
    CHECK(steps_of(fit(prefetched.training, source, {.epochs = 2})) == Numbers{3, 6});
}

TEST_CASE("epochs are counted from step 0, and one that was begun is the first") {
    Runs runs;
    CHECK(steps_of(fit(runs.training, runs.batches, {.epochs = 1})) == Numbers{3});
    CHECK(steps_of(fit(runs.training, runs.batches, {.epochs = 2})) == Numbers{6, 8});
    CHECK(epochs_of(fit(runs.training, runs.batches, {.steps = 1})) == Numbers{3});
    CHECK(steps_of(fit(runs.training, runs.batches, {.epochs = 1})) == Numbers{11});
    CHECK(fit(runs.training, runs.batches, {.epochs = 0}).records.empty());
    CHECK(runs.training.step() == 11);
}

TEST_CASE("a record is made every so many epochs or steps, and one at the end") {
    Runs runs;
    CHECK(steps_of(fit(runs.training, runs.batches, {.epochs = 5, .every = 2})) == Numbers{6, 11, 14});
    CHECK(steps_of(fit(runs.training, runs.batches, {.steps = 7, .every = 3})) == Numbers{17, 20, 21});
    CHECK(steps_of(fit(runs.training, runs.batches, {.steps = 4})) == Numbers{25});
    CHECK(steps_of(fit(runs.training, runs.batches, {.steps = 0})).empty());
    CHECK(steps_of(fit(runs.training, runs.batches, {.steps = 100, .every = 4},
                       StopWhen{[](const StepReport& report) { return report.step == 29; }})) == Numbers{29, 30});
}

TEST_CASE("a record has the mean of the losses since the last one, the rate of its last step and the validation") {
    Runs runs(exponential_decay(0.1, 1, 0.5));
    Told told;
    const History history =
        fit(runs.training, runs.batches, {.steps = 5, .every = 3, .validation = runs.validation}, told);
    REQUIRE(history.records.size() == 2);
    CHECK(history.records[0].loss ==
          doctest::Approx((told.losses[0] + told.losses[1] + told.losses[2]) / 3).epsilon(1e-14));
    CHECK(history.records[1].loss == doctest::Approx((told.losses[3] + told.losses[4]) / 2).epsilon(1e-14));
    CHECK(history.records[0].learning_rate == told.rates[2]);
    CHECK(history.records[1].learning_rate == told.rates[4]);
    CHECK(*history.records[1].validation_loss == evaluate(runs.training, runs.validation).loss);
    CHECK(*history.records[0].validation_loss != *history.records[1].validation_loss);
    CHECK(history.records[0].seconds > 0);
    CHECK(history.records[1].seconds >= history.records[0].seconds + history.records[1].validation_seconds);
    CHECK(history.quantity == "validation_loss");
    CHECK(told.calls ==
          std::vector<std::string>{"step 0", "step 1", "step 2", "record 3", "step 3", "step 4", "record 5", "end"});
    CHECK(*told.records[0].validation_loss == *history.records[0].validation_loss);

    Runs without;
    CHECK(fit(without.training, without.batches, {.steps = 1}).records[0].validation_loss == std::nullopt);
}

TEST_CASE("validations do not change the bits of a training") {
    Runs with, without;
    fit(with.training, with.batches, {.epochs = 4, .validation = with.validation, .restore_best = false});
    fit(without.training, without.batches, {.epochs = 4});
    CHECK(with.training.parameters() == without.training.parameters());
}

TEST_CASE("the moving averages are validated if requested, and a temporary of batches is kept") {
    Runs runs;
    Training averaged({.replicas = 2, .batch_size = 12, .seed = 1, .moving_average = {.decay = 0.9}});
    const FitOptions<Training> options{.steps = 6,
                                       .validation = EvaluationBatches(runs.others.data, IdentityTransform{}, 7),
                                       .weights = Weights::averages};
    const History history = fit(averaged, runs.batches, options);
    const EvaluationBatches same(runs.others.data, IdentityTransform{}, 7);
    CHECK(*history.records[0].validation_loss == evaluate(averaged, same, Weights::averages).loss);
    CHECK(*history.records[0].validation_loss != evaluate(averaged, same).loss);
}

TEST_CASE("a run ends when its patience is over") {
    Runs constant_loss(Schedule(0.0));
    const History history = fit(constant_loss.training, constant_loss.batches,
                                {.epochs = 50, .validation = constant_loss.validation, .patience = 3});
    CHECK(history.stopped_early);
    CHECK(history.records.size() == 4);  // the first is the best, and three are not better
    CHECK(history.best == 0);

    Runs by_steps(Schedule(0.0));
    const History of_steps = fit(by_steps.training, by_steps.batches,
                                 {.steps = 100, .every = 5, .validation = by_steps.validation, .patience = 1});
    CHECK(of_steps.stopped_early);
    CHECK(of_steps.steps == 10);

    Runs learns;
    const History whole =
        fit(learns.training, learns.batches, {.epochs = 6, .validation = learns.validation, .patience = 1});
    CHECK(!whole.stopped_early);
    CHECK(whole.records.size() == 6);
    CHECK(whole.best == 5);

    Runs demanding;  // learns too, by less than 10 per epoch
    CHECK(fit(demanding.training, demanding.batches,
              {.epochs = 6, .validation = demanding.validation, .patience = 2, .min_delta = 10})
              .records.size() == 3);
}

TEST_CASE("the patience may be that of the training's loss") {
    Runs runs(spoiled_after_10());
    const History history =
        fit(runs.training, runs.batches,
            {.steps = 100, .every = 5, .validation = runs.validation, .quantity = "loss", .patience = 1});
    CHECK(history.quantity == "loss");
    CHECK(history.stopped_early);
    CHECK(history.steps < 100);
    CHECK(history.records[*history.best].loss < history.records.back().loss);

    Runs without(spoiled_after_10());
    CHECK(fit(without.training, without.batches, {.steps = 100, .every = 5, .patience = 1}).quantity == "loss");
}

TEST_CASE("the best state of a run is restored at its end") {
    for (const bool restores : {true, false}) {
        Runs runs(spoiled_after_10()), stopped(spoiled_after_10());
        TrainingState state;
        struct KeepsAt10 {
            Training& training;
            TrainingState& state;
            void on_record(const HistoryRecord& record, Run&) const {
                if (record.step == 10) state = training.state();
            }
        };
        const History history = fit(runs.training, runs.batches,
                                    {.steps = 20, .every = 5, .validation = runs.validation, .restore_best = restores},
                                    KeepsAt10{runs.training, state});
        CHECK(steps_of(history) == Numbers{5, 10, 15, 20});
        REQUIRE(history.best == 1);
        CHECK(history.steps == 20);
        CHECK(runs.training.step() == (restores ? 10 : 20));
        if (!restores) continue;
        CHECK(runs.training.parameters() == state.parameters);
        // The next step is that of a run that ended after the record.
        fit(stopped.training, stopped.batches, {.steps = 10});
        fit(stopped.training, stopped.batches, {.steps = 1});
        fit(runs.training, runs.batches, {.steps = 1});
        CHECK(runs.training.parameters() == stopped.training.parameters());
    }
}

TEST_CASE("an exception of on_record, or of a validation, ends the run after on_end") {
    struct Throws {
        int ends = 0;
        void on_record(const HistoryRecord&, Run&) { throw DataError("no room"); }
        void on_end(Run&) { ++ends; }
    };
    Runs runs;
    Throws throws;
    Told told;
    CHECK(message_of<DataError>([&] { fit(runs.training, runs.batches, {.epochs = 2}, throws, told); }) == "no room");
    CHECK(throws.ends == 1);
    CHECK(told.records.size() == 1);
    CHECK(runs.training.step() == 3);

    struct Fails {
        [[nodiscard]] std::int64_t count() const { return 1; }
        BatchView operator()(std::int64_t, int, HostContext&) const { throw DataError("the file is gone"); }
    };
    CHECK(message_of<DataError>([&] {
              fit(runs.training, runs.batches, {.epochs = 2, .validation = Fails{}}, told);
          }) == "the file is gone");
    CHECK(told.calls.back() == "end");
}

TEST_CASE("a validation that is not for the training is rejected before the run begins") {
    Runs runs;
    Told told;
    const auto refusal = [&](const FitOptions<Training>& options) {
        return message_of<InvalidArgument>([&] { fit(runs.training, runs.batches, options, told); });
    };
    const InMemory numbers(Two::input_shape, runs.points.values, {2}, runs.points.values);
    CHECK(refusal({.epochs = 1, .validation = EvaluationBatches(numbers, IdentityTransform{}, 12)}) ==
          "the batches have a column target of float32 2, and cross_entropy reads int32 1");
    CHECK(
        refusal({.epochs = 1, .validation = EvaluationBatches(runs.points.data, IdentityTransform{}, 13)}) ==
        "a forward pass takes 1 to 12 samples, the larger of batch_size and evaluation_batch_size in the options, not 13");
    CHECK(refusal({.epochs = 1, .validation = runs.validation, .weights = Weights::averages}) ==
          "this training keeps no moving averages to run the network with; set moving_average in its options");
    const auto zeros = [](std::int64_t, const RandomStream&, const BatchSpan& sample) {
        std::fill_n(sample.inputs(), 2, 0.0F);
        *sample.data<std::int32_t>("target") = 0;
    };
    const Columns columns{{"input", ElementType::float32, {2}}, {"target", ElementType::int32, {1}}};
    const FirstBatches large(Generator(columns, zeros, {.batch_size = 13}), 2);
    CHECK(contains(refusal({.epochs = 1, .validation = large}), "a forward pass takes 1 to 12 samples, "));
    CHECK(told.calls.empty());
    CHECK(runs.training.step() == 0);
}

TEST_CASE("a validation without batches or samples is an error, and not a loss of 0") {
    struct Few {
        std::int64_t batches;
        [[nodiscard]] std::int64_t count() const { return batches; }
        BatchView operator()(std::int64_t, int, HostContext&) const { return {nullptr, nullptr, 0, Two::input_shape}; }
    };
    Runs runs;
    CHECK(message_of<InvalidArgument>([&] { fit(runs.training, runs.batches, {.epochs = 1, .validation = Few{0}}); }) ==
          ".validation has no batches, and so no loss");
    CHECK(runs.training.step() == 0);
    CHECK(message_of<DataError>([&] { fit(runs.training, runs.batches, {.epochs = 1, .validation = Few{2}}); }) ==
          "an evaluation needs at least one sample, and its 2 batches have none");
}

TEST_CASE("options of a run that do not fit together are rejected before it begins") {
    Runs runs;
    Told told;
    const auto refusal = [&](const FitOptions<Training>& options) {
        return message_of<InvalidArgument>([&] { fit(runs.training, runs.batches, options, told); });
    };
    CHECK(refusal({}) == "a run has .steps or .epochs, and neither is given");
    CHECK(refusal({.steps = 1, .epochs = 1}) == "a run has .steps or .epochs, not both");
    CHECK(refusal({.steps = -1}) == "a run must have 0 or more steps, not -1");
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    Runs later;
    fit(later.training, later.batches, {.steps = 1});
    CHECK(message_of<InvalidArgument>([&] { fit(later.training, later.batches, {.steps = most}); }) ==
          text(most, " steps from step 1 on are too many to count"));
    CHECK(refusal({.epochs = -2}) == "a run must have 0 or more epochs, not -2");
    CHECK(refusal({.epochs = 200'000'000'000'000'000}) ==
          "200000000000000000 epochs of 64 samples are too many to count");
    CHECK(refusal({.steps = 1, .every = -1}) == ".every must be 0 or more steps, not -1");
    CHECK(refusal({.epochs = 1, .every = -1}) == ".every must be 0 or more epochs, not -1");
    CHECK(refusal({.epochs = 1, .patience = -1}) ==
          ".patience must be 0 (the run is not ended early) or more records, not -1");
    CHECK(refusal({.epochs = 1, .min_delta = -0.5}) == ".min_delta must be 0 or more, not -0.5");
    CHECK(refusal({.epochs = 1, .min_delta = std::nan("")}) == ".min_delta must be 0 or more, not nan");
    CHECK(refusal({.epochs = 1, .patience = 1, .min_delta = std::numeric_limits<double>::infinity()}) ==
          ".min_delta must be 0 or more, not inf");
    CHECK(refusal({.epochs = 1, .min_delta = 0.5}) ==
          ".min_delta is 0.5 and needs .patience, the records without a better value that end the run");
    CHECK(refusal({.epochs = 1, .weights = Weights::averages}) ==
          ".weights needs .validation, the batches that they are validated on");
    CHECK(refusal({.steps = 9, .patience = 1}) ==
          ".patience of a run by steps needs .every, the steps between two records");
    CHECK(refusal({.steps = 9, .restore_best = true}) ==
          ".restore_best of a run by steps needs .every, the steps between two records");
    CHECK(refusal({.epochs = 1, .quantity = "validation_loss"}) ==
          ".quantity is \"validation_loss\", and the records of this run have: loss");
    CHECK(refusal({.epochs = 1, .validation = runs.validation, .quantity = "acuracy"}) ==
          ".quantity is \"acuracy\", and the records of this run have: loss, validation_loss");
    CHECK(
        refusal({.epochs = 1, .validation = EvaluationBatches(runs.others.data, IdentityTransform{}, 13)}) ==
        "a forward pass takes 1 to 12 samples, the larger of batch_size and evaluation_batch_size in the options, not 13");
    CHECK(refusal({.epochs = 1, .validation = runs.validation, .weights = Weights::averages}) ==
          "this training keeps no moving averages to run the network with; set moving_average in its options");
    const InMemory numbers({2}, runs.others.values, {2}, runs.others.values);
    CHECK(refusal({.epochs = 1, .validation = EvaluationBatches(numbers, IdentityTransform{}, 12)}) ==
          "the batches have a column target of float32 2, and cross_entropy reads int32 1");
    const auto endless = [&](std::int64_t step, int replica, HostContext& context) {
        return runs.batches(step, replica, context);
    };
    CHECK(contains(message_of<InvalidArgument>([&] { fit(runs.training, endless, {.epochs = 1}, told); }),
                   ".epochs needs batches with samples_per_epoch(), as those of a data set; "));
    CHECK(told.calls.empty());
    CHECK(runs.training.step() == 0);
    CHECK(fit(runs.training, endless, {.steps = 1}).records[0].epoch == std::nullopt);
}
