// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/loss/data_losses.hpp, cupola/loss/several_outputs.hpp
//
// A training with one loss per output of its network: the sum of the losses is trained and each is reported by name, on every
// device, for every kind of agreement.
#include <cupola/parallel/data_parallel.hpp>

#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/metrics.hpp>
#include <cupola/net/named_values.hpp>

#include "delayed_device.hpp"
#include "largest_difference.hpp"
#include "loss/squares.hpp"
#include "policies.hpp"
#include "throws_with.hpp"

namespace {

using Squares = SumOfSquares<>;

struct Net : Sequential<Input<5>, Named<"body", Linear<7>>, ReLU, Keep<"shared">, Named<"kinds", Linear<3>>,
                        Output<"kind">, From<"shared">, Named<"boxes", Linear<2>>, Output<"box">> {};
/// The first loss compares with the input, as that of an autoencoder.
struct CoderNet : Sequential<Input<5>, Named<"body", Linear<7>>, ReLU, Keep<"code">, Named<"copies", Linear<5>>,
                             Output<"copy">, From<"code">, Named<"kinds", Linear<3>>, Output<"kind">> {};
using CoderLoss = Losses<At<"copy", Squares, "input">, At<"kind", CrossEntropy<3>>>;
struct ColumnNet : Sequential<Input<5>, Named<"body", Linear<2>>, Keep<"all">, FromInput<"box", 2>, AddFrom<"all">,
                              Named<"boxes", Linear<2>>, Output<"copy">> {};
using ColumnLoss = Losses<At<"copy", Squares, "box">>;

struct KindNet : Sequential<Input<5>, Named<"body", Linear<7>>, ReLU, Named<"kinds", Linear<3>>> {};
struct BoxNet : Sequential<Input<5>, Named<"body", Linear<7>>, ReLU, Named<"boxes", Linear<2>>> {};

template <Number kind, Number box>
using Both = Losses<At<"kind", Weighted<kind, CrossEntropy<3>>>, At<"box", Weighted<box, Squares>>>;
template <class Loss, class A = ConcatMean, class D = Host>
using TrainingOf = DataParallel<Net, Loss, Sgd, A, D>;

constexpr std::int64_t count = 12;

struct Samples {
    std::vector<float> inputs = std::vector<float>(count * 5), boxes = std::vector<float>(count * 2);
    std::vector<std::int32_t> kinds = std::vector<std::int32_t>(count);
    Samples() {
        initialize(inputs, normal(1.0), 1, 1, 3, 0);
        initialize(boxes, normal(1.0), 1, 1, 4, 0);
        for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<std::int32_t>(i * 7 % 3);
    }
    /// The columns in another order than the losses.
    [[nodiscard]] BatchView view(std::int64_t first, std::int64_t size) const {
        return {size,
                {{{"box", ElementType::float32, {2}}, boxes.data() + first * 2},
                 {{"input", ElementType::float32, {5}}, inputs.data() + first * 5},
                 {{"kind", ElementType::int32, {1}}, kinds.data() + first}}};
    }
};

template <class T>
std::vector<float> gradient_of(const Samples& samples) {
    T training({.batch_size = count, .seed = 2});
    const BatchView all[] = {samples.view(0, count)};
    training.step(all);
    return training.gradient(0);
}

/// The parameters of Net of the body and one head.
std::vector<float> parameters_of(const std::vector<float>& all, std::span<const LayerInfo> part) {
    std::vector<float> result(static_cast<std::size_t>(arena_elements(part)));
    for (const LayerInfo& to : part) {
        for (const LayerInfo& from : Net::layers) {
            if (from.name != to.name) continue;
            for (std::size_t p = 0; p < to.parameters.count; ++p)
                std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(from.offsets[p]),
                            to.parameters.list[p].shape.size(),
                            result.begin() + static_cast<std::ptrdiff_t>(to.offsets[p]));
        }
    }
    return result;
}

}  // namespace

TEST_CASE("the loss is the sum of the outputs' losses by their factors, each reported by name") {
    const Samples samples;
    TrainingOf<Both<1, 0.5>> training({.batch_size = count, .seed = 2});
    const std::vector<float> parameters = training.parameters();
    const BatchView all[] = {samples.view(0, count)};
    const StepReport report = training.step(all);
    const std::vector<LossPart>& parts = report.replicas[0].parts;
    REQUIRE(parts.size() == 2);
    CHECK(parts[0].name == "kind");
    CHECK(parts[1].name == "box");
    CHECK(report.loss == doctest::Approx(parts[0].value + parts[1].value));

    DataParallel<KindNet, CrossEntropy<3>, Sgd, ConcatMean, Host> kind({.batch_size = count, .seed = 2});
    kind.set_parameters(parameters_of(parameters, KindNet::layers));
    const BatchView of_kind[] = {{samples.inputs.data(), samples.kinds.data(), count, Shape{5}}};
    const StepReport kinds = kind.step(of_kind);
    CHECK(parts[0].value == doctest::Approx(kinds.loss));
    CHECK(report.replicas[0].correct == kinds.replicas[0].correct);
    CHECK(report.replicas[0].predictions == count);
    DataParallel<BoxNet, Weighted<0.5, Squares>, Sgd, ConcatMean, Host> box({.batch_size = count, .seed = 2});
    box.set_parameters(parameters_of(parameters, BoxNet::layers));
    const BatchView of_box[] = {{samples.inputs.data(), {5}, samples.boxes.data(), {2}, count}};
    CHECK(parts[1].value == doctest::Approx(box.step(of_box).loss));

    // The gradients of the heads are those of their losses, that of the body is the sum.
    const std::vector<float> both = training.gradient(0), of_kinds = kind.gradient(0), of_boxes = box.gradient(0);
    std::vector<float> kind_part = parameters_of(both, KindNet::layers), box_part = parameters_of(both, BoxNet::layers);
    const auto body = static_cast<std::size_t>(KindNet::layers[2].offsets[0]);
    for (std::size_t i = 0; i < body; ++i) {
        CHECK(kind_part[i] == doctest::Approx(of_kinds[i] + of_boxes[i]).epsilon(1e-4));
        kind_part[i] = of_kinds[i];
        box_part[i] = of_boxes[i];
    }
    CHECK(largest_difference(kind_part, of_kinds) < 1e-6);
    CHECK(largest_difference(box_part, of_boxes) < 1e-6);
}

TEST_CASE("the gradient is linear in the factors") {
    const Samples samples;
    const std::vector<float> both = gradient_of<TrainingOf<Both<3, 1.5>>>(samples),
                             first = gradient_of<TrainingOf<Both<1, 0.25>>>(samples),
                             second = gradient_of<TrainingOf<Both<1, 1>>>(samples);
    std::vector<float> sum(both.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = 2.0F * first[i] + second[i];
    CHECK(largest_difference(both, sum) < 1e-5);
}

TEST_CASE("replicas, devices and batches whose gradients are added up equal one batch of all, with every agreement") {
    const Samples samples;
    using Loss = Both<1, 0.5>;
    const auto run = [&]<class T>(typename T::Options options, std::int64_t batches) {
        options.seed = 2;
        options.batch_size = count / batches;
        options.optimizer = {.learning_rate = 0.1};
        const std::int64_t parts = batches / options.replicas;
        T training(options);
        for (int s = 0; s < 3; ++s) {
            training.step([&](std::int64_t place, int replica, HostContext&) {
                return samples.view((replica * parts + place % parts) * options.batch_size, options.batch_size);
            });
        }
        return training.parameters();
    };
    const std::vector<float> one = run.template operator()<TrainingOf<Loss>>({}, 1);
    const auto check = [&]<class A, class D>() {
        for (const int devices : {1, 2})
            CHECK(largest_difference(
                      run.template operator()<TrainingOf<Loss, A, D>>({.replicas = 2, .devices = devices}, 2), one) <
                  1e-5);
        CHECK(largest_difference(run.template operator()<TrainingOf<Loss, A, D>>(
                                     {.replicas = 2, .devices = 2, .gradient_accumulation_steps = 2}, 4),
                                 one) < 1e-5);
    };
    check.template operator()<ConcatMean, Host>();
    check.template operator()<ConcatMean, Delayed>();
    check.template operator()<DeviceSum, Host>();
    check.template operator()<DeviceSum, Delayed>();
}

TEST_CASE("an evaluation has the loss of each output") {
    const Samples samples;
    TrainingOf<Both<1, 0.5>> training({.devices = 1, .batch_size = count, .seed = 2});
    const BatchView all[] = {samples.view(0, count)};
    const Evaluation evaluation =
        training.evaluate([&](std::int64_t i, int, HostContext&) { return samples.view(4 * i, 4); }, 3);
    REQUIRE(evaluation.losses.size() == 2);
    CHECK(evaluation.losses[0].name == "kind");
    CHECK(evaluation.losses[1].name == "box");
    CHECK(evaluation.loss == doctest::Approx(evaluation.losses[0].loss + 0.5 * evaluation.losses[1].loss));
    CHECK(evaluation.predictions == count);
    CHECK(evaluation.losses[1].predictions == 0);
    const StepReport report = training.step(all);
    CHECK(report.loss == doctest::Approx(evaluation.loss));
    CHECK(report.replicas[0].correct == evaluation.correct);
}

TEST_CASE("an invalid target or a loss that is not finite at one output is reported, and changes nothing") {
    Samples samples;
    TrainingOf<Both<1, 0.5>> training({.batch_size = count, .seed = 2});
    const std::vector<float> before = training.parameters();
    const auto step = [&] {
        const BatchView all[] = {samples.view(0, count)};
        training.step(all);
    };
    samples.kinds[3] = 3;
    const std::string message =
        "the loss of the output kind: sample 3 of the batch has label 3, but the loss has classes 0 to 2";
    CHECK(message_of<InvalidArgument>(step) == message);
    CHECK(message_of<InvalidArgument>([&] {
              training.evaluate([&](std::int64_t, int, HostContext&) { return samples.view(0, count); }, 1);
          }) == message);
    samples.kinds[3] = 0;
    samples.boxes[5] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(message_of<DivergedError>(step), "the loss of replica 0 is nan at step 0"));
    CHECK(training.parameters() == before);
    samples.boxes[5] = 0;
    CHECK_NOTHROW(step());
    CHECK(message_of<InvalidArgument>([&] {
              const BatchView all[] = {{samples.inputs.data(), samples.kinds.data(), count, Shape{5}}};
              training.step(all);
          }) == "a batch has no column kind, which cross_entropy reads; the columns are: input, target");
}

TEST_CASE("two outputs read one column") {
    using Loss = Losses<At<"kind", CrossEntropy<3>, "label">, At<"box", CrossEntropy<2>, "label">>;
    Samples samples;
    for (std::int32_t& kind : samples.kinds) kind = kind % 2;
    TrainingOf<Loss> training({.batch_size = count, .seed = 2});
    CHECK(training.required_columns().size() == 2);
    const BatchView all[] = {{count,
                              {{{"input", ElementType::float32, {5}}, samples.inputs.data()},
                               {{"label", ElementType::int32, {1}}, samples.kinds.data()}}}};
    CHECK(training.step(all).replicas[0].parts.size() == 2);
}

TEST_CASE("a loss and metrics may read a column that the network reads") {
    const Samples samples;
    const auto view = [&](std::int64_t i, int, HostContext&) { return samples.view(i * 4, 4); };
    struct Source {
        const Samples& samples;
        [[nodiscard]] std::int64_t count() const { return 3; }
        BatchView operator()(std::int64_t i, int, HostContext&) const { return samples.view(i * 4, 4); }
    };
    const Source test{samples};
    const auto check = [&]<class D>() {
        DataParallel<CoderNet, CoderLoss, Sgd, ConcatMean, D> coder({.batch_size = 4, .seed = 2});
        const Evaluation result = evaluate(coder, test, metrics::At<"copy", metrics::MeanAbsoluteError, "input">{});
        const std::vector<float> copies = coder.predict({samples.inputs.data(), 4}, "copy");
        double sum = 0;
        for (std::size_t i = 0; i < copies.size(); ++i)
            sum += std::abs(static_cast<double>(copies[i]) - static_cast<double>(samples.inputs[i]));
        struct FirstBatch : Source {
            [[nodiscard]] std::int64_t count() const { return 1; }
        };
        CHECK(evaluate(coder, FirstBatch{{samples}}, metrics::At<"copy", metrics::MeanAbsoluteError, "input">{})
                  .metric("copy/mean_absolute_error") == doctest::Approx(sum / 20).epsilon(1e-6));
        CHECK(result.metrics.size() == 1);

        DataParallel<ColumnNet, ColumnLoss, Sgd, ConcatMean, D> column({.batch_size = 4, .seed = 2});
        const double before = column.evaluate(view, 1).loss;
        for (int s = 0; s < 20; ++s) column.step([&](std::int64_t, int, HostContext&) { return samples.view(0, 4); });
        CHECK(column.evaluate(view, 1).loss < before);
        CHECK(evaluate(column, test, metrics::At<"copy", metrics::MeanAbsoluteError, "box">{}).metrics[0].value > 0);
    };
    check.template operator()<Host>();
    check.template operator()<Delayed>();
}

TEST_CASE("columns that are read in two ways, and more columns than a batch has, are a mistake of the losses") {
    const auto said = [](const CompileTimeMessage& message) { return std::string(message.characters, message.size); };
    using Mixed = Losses<At<"kind", CrossEntropy<3>, "all">, At<"box", Squares, "all">>;
    CHECK(said(CollectionOf<Mixed>::diagnostic_on<Host>(Net::layers)) ==
          "cross_entropy reads the column all as int32 1, and squares as float32 2");
    using OfInput = Losses<At<"kind", CrossEntropy<3>>, At<"box", Squares, "input">>;
    CHECK(said(CollectionOf<OfInput>::diagnostic_on<Host>(Net::layers)) ==
          "the network reads the column input as float32 5, and squares as float32 2");
    struct Eight : Sequential<Input<2>, Linear<2>, Output<"a">, Output<"b">, Output<"c">, Output<"d">, Output<"e">,
                              Output<"f">, Output<"g">, Output<"h">> {};
    using EightLosses = Losses<At<"a", Squares>, At<"b", Squares>, At<"c", Squares>, At<"d", Squares>, At<"e", Squares>,
                               At<"f", Squares>, At<"g", Squares>, At<"h", Squares>>;
    CHECK(said(CollectionOf<EightLosses>::diagnostic_on<Host>(Eight::layers)) ==
          "the network and its losses read more than 8 columns of a batch");
}
