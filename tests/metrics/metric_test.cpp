// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/metrics.hpp, cupola/metrics/at.hpp, cupola/metrics/metric_batch.hpp, cupola/parallel/evaluation_feed.hpp
// Covers: cupola/train/evaluate.hpp
#include <cupola/loss/mean_absolute_error.hpp>
#include <cupola/loss/mean_squared_error.hpp>
#include <cupola/metrics.hpp>
#include <cupola/metrics/metric.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/net/named_values.hpp>

#include "metrics/batch_of.hpp"
#include "throws_with.hpp"

namespace {

struct Three : Sequential<Input<4>, Linear<8>, ReLU, Linear<3>> {};
using Training = DataParallel<Three, CrossEntropy<3>, Sgd, ConcatMean, Host>;

struct Points {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    InMemory data;
    Points() : data(made()) {}

private:
    InMemory made() {
        for (std::uint64_t i = 0; i < 47; ++i) {
            const auto words = RandomStream(3, RngDomain::user, 0, i).words(0);
            for (const auto word : words) values.push_back(uniform(word) - 0.5F);
            labels.push_back(static_cast<std::int32_t>(words[0] % 3));
        }
        return {Three::input_shape, values, labels, 3};
    }
};

/// Depends on the order in which samples are added.
struct Ordered {
    double value = 0;
    std::vector<std::int64_t> sizes{};
    std::vector<std::int32_t> labels{};
    std::vector<float> outputs{};
    void begin(const MetricTask& task) {
        CHECK(task.output == Shape{3});
        CHECK(task.target == ColumnSpec{"target", ElementType::int32, {1}});
        *this = {};
    }
    void add(const MetricBatch& batch) {
        sizes.push_back(batch.size);
        CHECK(batch.targets.columns().size() == 1);
        for (const std::int32_t label : batch.target<std::int32_t>()) labels.push_back(label);
        for (std::int64_t i = 0; i < batch.size; ++i) {
            for (const float output : batch.output(i)) {
                outputs.push_back(output);
                value = 0.999 * value + static_cast<double>(output);
            }
        }
    }
    void report(MetricResults& results) const { results.add("ordered", value, Better::smaller); }
};
static_assert(Metric<Ordered> && !Metric<Points>);

struct Fails {
    std::int64_t at = 0, seen = 0;
    void begin(const MetricTask&) { seen = 0; }
    void add(const MetricBatch&) {
        if (seen++ == at) throw DataError("the metric has no memory");
    }
    void report(MetricResults&) const {}
};

}  // namespace

TEST_CASE("metrics see each batch once, in order, and have the same bits for any number of devices") {
    const Points points;
    Ordered expected;
    for (const int devices : {1, 2, 3}) {
        Training training({.replicas = 3, .devices = devices, .batch_size = 6, .seed = 1});
        EvaluationBatches test(points.data, IdentityTransform{}, 6);
        const Evaluation without = evaluate(training, test);
        Ordered ordered;
        metrics::ConfusionMatrix matrix;
        const Evaluation result = evaluate(training, test, Weights::trained, metrics::Accuracy{}, ordered, matrix,
                                           metrics::Auc{.positive = 2});
        CHECK(result.loss == without.loss);
        CHECK(result.correct == without.correct);
        CHECK(without.metrics.empty());
        CHECK(result.metric("accuracy") == without.accuracy());
        CHECK(matrix.count(0, 0) + matrix.count(1, 1) + matrix.count(2, 2) == without.correct);
        REQUIRE(result.metrics.size() == 4);
        CHECK(result.metrics[1].name == "ordered");
        CHECK(result.metrics[1].value == ordered.value);
        CHECK(!result.metrics[1].larger_is_better);
        CHECK(result.metrics[3].name == "auc");
        CHECK(ordered.sizes == std::vector<std::int64_t>{6, 6, 6, 6, 6, 6, 6, 5});
        CHECK(ordered.labels == points.labels);
        if (devices == 1) {
            CHECK(training.predict({points.values.data(), 6}) ==
                  std::vector<float>(ordered.outputs.begin(), ordered.outputs.begin() + 18));
            expected = ordered;
        }
        CHECK(ordered.outputs == expected.outputs);
        CHECK(ordered.value == expected.value);
        CHECK(evaluate(training, test, ordered).metric("ordered") == expected.value);  // starts again
    }
}

TEST_CASE("the moving averages' outputs are measured if requested") {
    const Points points;
    Training training({.batch_size = 6, .seed = 1, .moving_average = {.decay = 0.9}});
    InMemoryBatches batches(points.data, {.batch_size = 6, .seed = 1});
    fit(training, batches, {.steps = 5});
    EvaluationBatches test(points.data, IdentityTransform{}, 6);
    Ordered trained, averages;
    evaluate(training, test, trained);
    evaluate(training, test, Weights::averages, averages);
    CHECK(trained.value != averages.value);
    // A batch of the same size: the bits of a product can depend on the number of its rows.
    CHECK(training.predict({points.values.data(), 6}, Weights::averages) ==
          std::vector<float>(averages.outputs.begin(), averages.outputs.begin() + 18));
}

TEST_CASE("a batch without samples is not shown to metrics, and those after it are") {
    const Points points;
    struct Gaps {
        const Points& points;
        [[nodiscard]] std::int64_t count() const { return 5; }
        BatchView operator()(std::int64_t i, int, HostContext&) const {
            return {points.values.data() + 4 * i, points.labels.data() + i, i % 2 == 0 ? 1 : 0, Three::input_shape};
        }
    };
    for (const int devices : {1, 2}) {
        Training training({.replicas = 2, .devices = devices, .batch_size = 6, .seed = 1});
        Ordered ordered;
        evaluate(training, Gaps{points}, ordered);
        CHECK(ordered.sizes == std::vector<std::int64_t>{1, 1, 1});
        CHECK(ordered.labels == std::vector<std::int32_t>{points.labels[0], points.labels[2], points.labels[4]});
    }
}

TEST_CASE("an evaluation of no samples is an error: it has no loss") {
    struct Nothing {
        std::int64_t batches;
        [[nodiscard]] std::int64_t count() const { return batches; }
        BatchView operator()(std::int64_t, int, HostContext&) const { return {0, {}}; }
    };
    for (const int devices : {1, 2}) {
        Training training({.replicas = 2, .devices = devices, .batch_size = 6, .seed = 1});
        const auto refusal = [&](std::int64_t batches) {
            return message_of<DataError>([&] { (void)evaluate(training, Nothing{batches}); });
        };
        CHECK(refusal(0) == "an evaluation needs at least one sample, and its 0 batches have none");
        CHECK(refusal(1) == "an evaluation needs at least one sample, and its 1 batch has none");
        CHECK(message_of<DataError>([&] { evaluate(training, Nothing{3}, metrics::Accuracy{}); }) ==
              "an evaluation needs at least one sample, and its 3 batches have none");
    }
}

TEST_CASE("an error of a metric, or of a batch on any device, ends the evaluation, and the training goes on") {
    Points points;
    EvaluationBatches test(points.data, IdentityTransform{}, 6);
    for (const int devices : {1, 2, 3}) {
        Training training({.replicas = 3, .devices = devices, .batch_size = 6, .seed = 1});
        for (const std::int64_t at : {0, 1, 7}) {
            CHECK(message_of<DataError>([&] { evaluate(training, test, Fails{.at = at}); }) ==
                  "the metric has no memory");
        }
        for (const std::size_t batch : {0U, 1U, 4U}) {
            float& value = points.values[batch * 24];
            const float before = value;
            value = std::numeric_limits<float>::infinity();
            CHECK(contains(message_of<InvalidArgument>([&] { evaluate(training, test, metrics::Accuracy{}); }),
                           text("in batch ", batch)));
            value = before;
        }
        CHECK(evaluate(training, test, metrics::Accuracy{}).samples == 47);
    }
}

TEST_CASE("a metric that reads a column that the batches lack is an error with the names") {
    struct Reads {
        std::string_view name = target_column;
        void begin(const MetricTask&) {}
        void add(const MetricBatch& batch) const { (void)batch.target<float>(name); }
        void report(MetricResults&) const {}
    };
    const Points points;
    Training training({.batch_size = 6});
    EvaluationBatches test(points.data, IdentityTransform{}, 6);
    CHECK(message_of<InvalidArgument>([&] { evaluate(training, test, Reads{}); }) ==
          "a metric reads the column target of float32, and the batches have one of int32");
    CHECK(message_of<InvalidArgument>([&] { evaluate(training, test, Reads{.name = "box"}); }) ==
          "a metric reads the column box of float32, and the batches have the columns: target");
}

TEST_CASE("names of results are unique, and a result that does not exist is an error") {
    const Points points;
    Training training({.batch_size = 6});
    EvaluationBatches test(points.data, IdentityTransform{}, 6);
    CHECK(message_of<InvalidArgument>([&] { evaluate(training, test, metrics::TopK<2>{}, metrics::TopK<2>{}); }) ==
          "two metrics have the name top_2_accuracy");
    CHECK(message_of<InvalidArgument>([&] { (void)evaluate(training, test).metric("accuracy"); }) ==
          "this evaluation has no metric accuracy, and no others");
    MetricResults results;
    for (const char* name : {"", "loss", "validation_loss"}) {
        CHECK(message_of<InvalidArgument>([&] { results.add(name, 1, Better::larger); }) ==
              text("a metric cannot have the name \"", name, "\""));
    }
}

TEST_CASE("the validations of a run compute metrics, and the best record may be chosen by one") {
    const Points points;
    InMemoryBatches batches(points.data, {.batch_size = 6, .seed = 1});
    EvaluationBatches test(points.data, IdentityTransform{}, 6);
    Training training({.batch_size = 6, .seed = 1, .optimizer = {.learning_rate = 0.2, .momentum = 0.9}});
    metrics::ConfusionMatrix matrix;
    const History history = fit(
        training, batches,
        {.epochs = 6, .validation = test, .metrics = {metrics::Accuracy{}, matrix, Ordered{}}, .quantity = "accuracy"});
    REQUIRE(history.records.size() == 6);
    CHECK(history.quantity == "accuracy");
    for (const HistoryRecord& record : history.records) {
        CHECK(record.metrics.size() == 3);
        CHECK(record.metric("accuracy") <= history.records[*history.best].metric("accuracy"));
    }
    CHECK(history.records.back().metric("accuracy") == evaluate(training, test).accuracy());
    CHECK(history.records.back().metric("balanced_accuracy") == matrix.balanced_accuracy());
    CHECK(message_of<InvalidArgument>([&] { (void)history.records[0].metric("auc"); }) ==
          "this record has no metric auc, but: accuracy, balanced_accuracy, ordered");

    // The smallest value is the best of a metric with Better::smaller.
    Training other({.batch_size = 6, .seed = 1, .optimizer = {.learning_rate = 0.2, .momentum = 0.9}});
    const History smallest =
        fit(other, batches, {.epochs = 6, .validation = test, .metrics = {Ordered{}}, .quantity = "ordered"});
    for (const HistoryRecord& record : smallest.records)
        CHECK(record.metric("ordered") >= smallest.records[*smallest.best].metric("ordered"));

    const auto refusal = [&](const FitOptions<Training>& options) {
        return message_of<InvalidArgument>([&] { fit(training, batches, options); });
    };
    CHECK(refusal({.epochs = 1, .metrics = {metrics::Accuracy{}}}) ==
          ".metrics needs .validation, the batches that they are computed of");
    CHECK(refusal({.epochs = 1, .validation = test, .metrics = {metrics::Accuracy{}}, .quantity = "auc"}) ==
          ".quantity is \"auc\", and the records of this run have: loss, validation_loss, accuracy");
}

namespace {

struct Heads
    : Sequential<Input<4>, Linear<8>, ReLU, Keep<"f">, Linear<3>, Output<"kind">, From<"f">, Linear<2>, Output<"box">> {
};
using HeadLoss = Losses<At<"kind", CrossEntropy<3>>, At<"box", Weighted<0.5, MeanSquaredError>>>;

/// Reads both outputs.
struct Both {
    static constexpr bool reads_all_outputs = true;
    std::vector<std::string> seen{};
    void begin(const MetricTask& task) {
        CHECK(task.at("kind", "kind").output == Shape{3});
        CHECK(task.at("kind", "box").target == ColumnSpec{"target", ElementType::float32, {2}});
        CHECK(message_of<InvalidArgument>([&] { (void)task.at("kind", "size"); }) ==
              "a metric reads the column size, and the losses read: input, kind, box");
    }
    void add(const MetricBatch& batch) {
        for (const MetricOutput& each : batch.all_outputs) seen.push_back(text(each.name, each.values.size()));
    }
    void report(MetricResults&) const {}
};

struct SumOfInputs {
    double sum = 0;
    void begin(const MetricTask&) { sum = 0; }
    void add(const MetricBatch& batch) {
        for (const float value : batch.target<float>()) sum += static_cast<double>(value);
    }
    void report(MetricResults& results) const { results.add("sum", sum, Better::larger); }
};

struct Wrong {
    static constexpr bool reads_all_outputs = true;
    std::string_view output, column;
    void begin(const MetricTask&) {}
    void add(const MetricBatch& batch) const { (void)batch.at(output, column); }
    void report(MetricResults&) const {}
};

template <class M, class Net, class Data>
std::string diagnostic_of() {
    constexpr CompileTimeMessage message = metric_diagnostic<M, Net, Data>();
    return {message.characters, message.size};
}

}  // namespace

TEST_CASE("a metric of a network with several outputs is of one of them, by its name") {
    const Points points;
    std::vector<float> boxes;
    for (std::size_t i = 0; i < 47; ++i)
        boxes.insert(boxes.end(), {points.values[4 * i], 2 * points.values[4 * i + 1]});
    const InMemory data({4}, points.values, {{"kind", {1}, points.labels}, {"box", {2}, boxes}});
    for (const int devices : {1, 2}) {
        DataParallel<Heads, HeadLoss, Sgd, ConcatMean, Host> training(
            {.replicas = 2, .devices = devices, .batch_size = 6, .seed = 1});
        EvaluationBatches test(data, IdentityTransform{}, 6);
        Both both;
        const Evaluation result = evaluate(training, test, metrics::At<"kind", metrics::Accuracy>{},
                                           metrics::At<"box", metrics::MeanAbsoluteError>{}, both);
        CHECK(result.metric("kind/accuracy") == result.accuracy());
        double sum = 0;
        for (std::size_t i = 0; i < 47; ++i) {
            const std::vector<float> box = training.predict({points.values.data() + 4 * i, 1});
            REQUIRE(box.size() == 2);
            for (std::size_t k = 0; k < 2; ++k)
                sum += std::abs(static_cast<double>(box[k]) - static_cast<double>(boxes[2 * i + k]));
        }
        CHECK(result.metric("box/mean_absolute_error") == doctest::Approx(sum / 94).epsilon(1e-5));
        CHECK(!result.metrics[1].larger_is_better);
        CHECK(both.seen.size() == 16);
        CHECK(both.seen[14] == "kind15");
        CHECK(both.seen[15] == "box10");

        const EvaluationBatches constant(data, IdentityTransform{}, 6);
        CHECK(evaluate(training, constant).loss == evaluate(training, test).loss);
        CHECK(evaluate(training, test, metrics::At<"box", SumOfInputs, "input">{}).metric("box/sum") ==
              doctest::Approx(std::accumulate(points.values.begin(), points.values.end(), 0.0)).epsilon(1e-5));
        CHECK_NOTHROW(evaluate(training, test, Wrong{"box", "input"}));
        CHECK(message_of<InvalidArgument>([&] {
                  evaluate(training, test, Wrong{"size", "box"});
              }) == "a metric reads the output size, which the network does not have");
        CHECK(message_of<InvalidArgument>([&] {
                  evaluate(training, test, Wrong{"box", "size"});
              }) == "a metric reads the column size, and the batches have the columns: input, kind, box");
    }
}

TEST_CASE("the records of a run have the loss of each output, and the best may be chosen by one") {
    const Points points;
    const std::vector<float> boxes(2 * 47, 0.25F);
    const InMemory data({4}, points.values, {{"kind", {1}, points.labels}, {"box", {2}, boxes}});
    InMemoryBatches batches(data, {.batch_size = 6, .seed = 1});
    EvaluationBatches test(data, IdentityTransform{}, 6);
    DataParallel<Heads, HeadLoss, Sgd, ConcatMean, Host> training(
        {.batch_size = 6, .seed = 1, .optimizer = {.learning_rate = 0.2}});
    const History history = fit(training, batches,
                                {.epochs = 3,
                                 .validation = test,
                                 .metrics = {metrics::At<"kind", metrics::Accuracy>{}},
                                 .quantity = "box/loss"});
    REQUIRE(history.records.size() == 3);
    const Evaluation last = evaluate(training, test);
    const HistoryRecord& record = history.records.back();
    REQUIRE(record.metrics.size() == 3);
    CHECK(record.metrics[0].name == "kind/loss");
    CHECK(record.metric("kind/loss") == last.losses[0].loss);
    CHECK(record.metric("box/loss") == last.losses[1].loss);
    CHECK(record.metric("kind/accuracy") == last.accuracy());
    CHECK(*record.validation_loss == doctest::Approx(last.losses[0].loss + 0.5 * last.losses[1].loss));
    for (const HistoryRecord& each : history.records)
        CHECK(each.metric("box/loss") >= history.records[*history.best].metric("box/loss"));
    CHECK(message_of<InvalidArgument>([&] { fit(training, batches, {.epochs = 2, .quantity = "box/loss"}); }) ==
          ".quantity is \"box/loss\", and the records of this run have: loss");
    CHECK(message_of<InvalidArgument>(
              [&] { fit(training, batches, {.epochs = 2, .validation = test, .quantity = "loss/box"}); }) ==
          ".quantity is \"loss/box\", and the records of this run have: loss, validation_loss, kind/loss, box/loss");
}

TEST_CASE("metrics are compared with the network and its losses when they are compiled") {
    using metrics::Accuracy;
    using metrics::MeanAbsoluteError;
    CHECK(diagnostic_of<Accuracy, Three, CrossEntropy<3>>().empty());
    CHECK(diagnostic_of<Both, Heads, HeadLoss>().empty());
    CHECK(contains(diagnostic_of<Ordered, Heads, HeadLoss>(),
                   "Ordered is of one output, but the network has the outputs kind, box: use metrics::At"));
    CHECK(diagnostic_of<metrics::At<"kind", Ordered>, Heads, HeadLoss>().empty());
    CHECK(diagnostic_of<metrics::At<"box", Ordered, "input">, Heads, HeadLoss>().empty());
    using Sizes = Losses<At<"kind", CrossEntropy<3>>, At<"box", MeanSquaredError, "size">>;
    CHECK(diagnostic_of<metrics::At<"box", MeanAbsoluteError, "size">, Heads, Sizes>().empty());
    CHECK(
        diagnostic_of<metrics::At<"box", MeanAbsoluteError>, Heads, Sizes>() ==
        "a metric of the output box reads the column box, but the network and its losses read: input, kind, size: the "
        "third argument of metrics::At is the column");
    CHECK(diagnostic_of<metrics::At<"kind", Accuracy>, Heads, HeadLoss>().empty());
    struct OneHead : Sequential<Input<4>, Linear<2>, Output<"box">> {};
    using OneLoss = Losses<At<"box", MeanSquaredError>>;
    CHECK(
        diagnostic_of<MeanAbsoluteError, OneHead, OneLoss>() ==
        "MeanAbsoluteError reads the column target, which the losses do not read: use metrics::At with the name of the output");
    CHECK(diagnostic_of<metrics::At<"box", MeanAbsoluteError>, OneHead, OneLoss>().empty());
    CHECK(diagnostic_of<Both, OneHead, OneLoss>().empty());
    CHECK(diagnostic_of<metrics::At<"box", MeanAbsoluteError>, Heads, HeadLoss>().empty());
    CHECK(contains(diagnostic_of<MeanAbsoluteError, Three, CrossEntropy<3>>(), "the loss reads int32 1"));
    CHECK(diagnostic_of<MeanAbsoluteError, Three, Weighted<2, MeanSquaredError>>().empty());
    CHECK(contains(diagnostic_of<metrics::At<"kind", MeanAbsoluteError>, Heads, HeadLoss>(), "the loss reads int32 1"));
    CHECK(diagnostic_of<metrics::At<"size", Accuracy>, Heads, HeadLoss>() ==
          "a metric is of the output size, but the outputs of the network are: kind, box");
    CHECK(contains(
        diagnostic_of<Accuracy, Heads, HeadLoss>(),
        "Accuracy is of one output, but the network has the outputs kind, box: use metrics::At with the name of one"));
}
