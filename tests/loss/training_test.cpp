// SPDX-License-Identifier: Apache-2.0
//
// The losses in trainings: gradients of networks, weights of replicas and of accumulated batches, options that are refused at
// the start, and an own loss from a formula.
#include "../test.hpp"

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/losses.hpp>
#include <cupola/net/check_gradients.hpp>

#include "../throws_with.hpp"

namespace {

constexpr std::int64_t height = 6, width = 5, replicas = 4, batch = 3;

/// A label per position.
struct Segmenter
    : Sequential<Input<height, width, 2>, Named<"conv1", Conv2d<4, 3>>, ReLU, Named<"conv2", Conv2d<3, 1>>> {};
/// A label per sample, or targets of the output's extents.
struct Classifier
    : Sequential<Input<height, width, 2>, Flatten, Named<"hidden", Linear<8>>, ReLU, Named<"out", Linear<3>>> {};

/// Means by samples, whatever the weights are.
struct BySamples : WeightedCrossEntropy<3> {
    static constexpr bool weighted = false;
};

constexpr std::int32_t ignored = 255;

/// Samples of every replica: each replica's ignored labels and classes are a different part of its labels.
struct Samples {
    std::vector<float> inputs = std::vector<float>(static_cast<std::size_t>(replicas * batch * height * width * 2));
    std::vector<std::int32_t> labels;
    std::int64_t labels_per_sample;

    explicit Samples(std::int64_t per_sample) : labels_per_sample(per_sample) {
        initialize(inputs, normal(1.0), 1, 1, 3, 0);
        for (std::int64_t i = 0; i < replicas * batch * per_sample; ++i) {
            const std::int64_t replica = i / (batch * per_sample);
            const bool ignores = replica > 0 && i % (replica + 1) == 0;
            labels.push_back(ignores ? ignored : static_cast<std::int32_t>(replica < 2 ? replica : i % 3));
        }
    }
    [[nodiscard]] BatchView view(std::int64_t first, std::int64_t size) const {
        const Shape of_labels = labels_per_sample == 1 ? Shape{1} : Shape{height, width};
        return {size,
                {{{input_column, ElementType::float32, {height, width, 2}}, inputs.data() + first * height * width * 2},
                 {{target_column, ElementType::int32, of_labels}, labels.data() + first * labels_per_sample}}};
    }
};

struct Ended {
    std::vector<float> gradient, parameters;
    StepReport report;
};

template <class Net, class Loss>
using TrainingOf = DataParallel<Net, Loss, Sgd, ConcatMean, Host>;

template <class Net, class Loss>
Ended run(typename TrainingOf<Net, Loss>::Options options, auto&& batches) {
    options.seed = 2;
    options.optimizer.learning_rate = 0.1;
    options.loss.data.class_weights = {0.5F, 4.0F, 1.0F};
    options.loss.data.ignored_label = ignored;
    TrainingOf<Net, Loss> training(options);
    Ended ended;
    for (int s = 0; s < 3; ++s) ended.report = training.step(batches);
    ended.gradient = training.averaged_gradient();
    ended.parameters = training.parameters();
    return ended;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0, of = 1e-30;
    for (std::size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
        of = std::max(of, std::abs(static_cast<double>(b[i])));
    }
    return largest / of;
}

template <class Net>
void replicas_equal_one(std::int64_t labels_per_sample) {
    const Samples samples(labels_per_sample);
    const auto all = [&](std::int64_t, int, HostContext&) { return samples.view(0, replicas * batch); };
    const auto each = [&](std::int64_t, int r, HostContext&) { return samples.view(r * batch, batch); };
    const auto parts = [&](std::int64_t place, int r, HostContext&) {
        return samples.view((2 * r + place % 2) * batch, batch);
    };
    using Loss = WeightedCrossEntropy<3>;
    const Ended one = run<Net, Loss>({.batch_size = replicas * batch}, all);
    CHECK(one.report.weight > 0);
    CHECK(one.report.weight != static_cast<double>(replicas * batch));
    const auto check = [&](const Ended& other) {
        CHECK(distance(other.gradient, one.gradient) < 1e-5);
        CHECK(distance(other.parameters, one.parameters) < 1e-5);
        CHECK(other.report.loss == doctest::Approx(one.report.loss).epsilon(1e-6));
        CHECK(other.report.weight == doctest::Approx(one.report.weight));
        std::int64_t predictions = 0;
        for (const ReplicaReport& replica : other.report.replicas) predictions += replica.predictions;
        CHECK(predictions == one.report.replicas[0].predictions);
    };
    check(run<Net, Loss>({.replicas = replicas, .batch_size = batch}, each));
    check(run<Net, Loss>({.replicas = replicas, .devices = 2, .batch_size = batch}, each));
    check(run<Net, Loss>({.replicas = 2, .batch_size = batch, .gradient_accumulation_steps = 2}, parts));
    CHECK(distance(run<Net, BySamples>({.replicas = replicas, .batch_size = batch}, each).gradient, one.gradient) >
          1e-2);
}

template <class Net, class Loss>
void check_network(const Loss& loss = {}) {
    const GradientCheck result = check_gradients<Net, Loss, Host>({.batch = 3}, {}, loss);
    CHECK_MESSAGE(result, Loss::name, ": ", result.report());
}

/// An own loss: the formula and the name.
struct QuantileFormula {
    float q;

    CUPOLA_HOST_DEVICE float operator()(float x, float t) const {
        return math::select(t > x, q * (t - x), (1.0F - q) * (x - t));
    }
    CUPOLA_HOST_DEVICE float derivative(float x, float t) const { return math::select(t > x, -q, 1.0F - q); }
};
struct Quantile : ElementwiseLoss<QuantileFormula, 0.75> {
    static constexpr std::string_view name = "quantile";
};

struct Line : Sequential<Input<1>, Linear<1>> {};

/// The output of a line for 0 after training on targets 1 to `count`, all at the input 0.
template <class Loss>
double constant_learned(int count, double rate) {
    const std::vector<float> inputs(static_cast<std::size_t>(count), 0.0F);
    std::vector<float> targets;
    for (int i = 1; i <= count; ++i) targets.push_back(static_cast<float>(i));
    TrainingOf<Line, Loss> training({.batch_size = count, .optimizer = {.learning_rate = rate}});
    const BatchView all[] = {{inputs.data(), {1}, targets.data(), {1}, count}};
    for (int s = 0; s < 400; ++s) training.step(all);
    return static_cast<double>(training.parameters()[static_cast<std::size_t>(Line::layers.back().offsets[1])]);
}

}  // namespace

TEST_CASE("four replicas whose labels have other weights equal one replica, and the mean by samples does not") {
    SUBCASE("a label per sample") { replicas_equal_one<Classifier>(1); }
    SUBCASE("a label per position") { replicas_equal_one<Segmenter>(height * width); }
}

TEST_CASE("check_gradients accepts every loss in a network") {
    check_network<Classifier, MeanSquaredError>();
    check_network<Segmenter, MeanSquaredError>();
    check_network<Classifier, MeanAbsoluteError>();
    check_network<Classifier, Huber<0.5>>();
    check_network<Segmenter>(BinaryCrossEntropy{.positive_weight = 3.0F});
    check_network<Segmenter>(WeightedBinaryCrossEntropy<3>{.positive_weights = {3.0F, 0.5F, 1.0F}});
    check_network<Segmenter, CrossEntropy<3>>(CrossEntropy<3>{.label_smoothing = 0.1F});
    const std::array<float, 3> weights{0.5F, 4.0F, 1.0F};
    check_network<Classifier>(WeightedCrossEntropy<3>{0.1F, weights});
    check_network<Segmenter>(WeightedCrossEntropy<3>{0.0F, weights, 1});
    check_network<Classifier>(SoftCrossEntropy<3>{0.1F, weights});
    check_network<Segmenter, SoftCrossEntropy<3>>();
    check_network<Classifier, Quantile>();
}

TEST_CASE("the constant that a loss learns is the mean, the median or the quantile of the targets") {
    CHECK(constant_learned<MeanSquaredError>(9, 0.1) == doctest::Approx(5.0).epsilon(1e-4));
    CHECK(constant_learned<MeanAbsoluteError>(9, 0.05) == doctest::Approx(5.0).epsilon(0.05));
    CHECK(constant_learned<Huber<100>>(9, 0.1) == doctest::Approx(5.0).epsilon(1e-4));
    CHECK(constant_learned<Quantile>(9, 0.1) == doctest::Approx(7.0).epsilon(0.02));
}

TEST_CASE("options of a loss are checked when the training is made") {
    const auto message = [](auto options) {
        return message_of<InvalidArgument>(
            [&] { TrainingOf<Classifier, decltype(options)> training({.loss = {options}}); });
    };
    CHECK(message(CrossEntropy<3>{.label_smoothing = 1.0F}) == "label smoothing must be in [0, 1), not 1");
    CHECK(message(WeightedCrossEntropy<3>{.class_weights = {0, 0, 0}}) == "the weights of all 3 classes are 0");
    CHECK(message(SoftCrossEntropy<3>{.class_weights = {1, -1, 0}}) ==
          "the weight of class 1 must be finite and at least 0, not -1");
    CHECK(message(BinaryCrossEntropy{.positive_weight = 0}) ==
          "the weight of positives of a binary cross-entropy must be finite and above 0, not 0");
}

TEST_CASE("a batch whose targets are not the loss's is rejected before the step") {
    TrainingOf<Segmenter, CrossEntropy<3>> training({.batch_size = 2});
    const Samples samples(1);
    const BatchView per_sample[] = {samples.view(0, 2)};
    CHECK(message_of<InvalidArgument>([&] { training.step(per_sample); }) ==
          "a batch has a column target of int32 1, and cross_entropy reads int32 6 x 5");
    TrainingOf<Classifier, MeanSquaredError> regression({.batch_size = 2});
    CHECK(message_of<InvalidArgument>([&] { regression.step(per_sample); }) ==
          "a batch has a column target of int32 1, and mean_squared_error reads float32 3");
}

TEST_CASE("a target that the loss does not take ends the step with one message") {
    TrainingOf<Line, BinaryCrossEntropy> training({.batch_size = 2});
    const std::vector<float> inputs{0, 1}, targets{1, 7};
    const BatchView all[] = {{inputs.data(), {1}, targets.data(), {1}, 2}};
    const std::vector<float> before = training.parameters();
    CHECK(
        message_of<InvalidArgument>([&] {
            training.step(all);
        }).find("sample 1 of the batch has target 7 at element 0, but the loss expects targets that are from 0 to 1") !=
        std::string::npos);
    CHECK(training.parameters() == before);
}

TEST_CASE("a loss without classes counts no predictions") {
    TrainingOf<Line, MeanSquaredError> training({.batch_size = 2});
    const std::vector<float> inputs{0, 1}, targets{1, 7};
    const auto view = [&](std::int64_t, int, HostContext&) {
        return BatchView{inputs.data(), {1}, targets.data(), {1}, 2};
    };
    const Evaluation evaluation = training.evaluate(view, 1);
    CHECK(evaluation.predictions == 0);
    CHECK(evaluation.samples == 2);
    CHECK(training.step(view).replicas[0].predictions == 0);
}
