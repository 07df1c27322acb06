// SPDX-License-Identifier: Apache-2.0
//
// Sampling by weights: frequencies against the weights, and the order as a function of seed and position.
#include <cupola/data/weighted_order.hpp>

#include "../test.hpp"

#include <cupola/data/batches.hpp>
#include <cupola/data/in_memory.hpp>
#include <cupola/data/prefetch.hpp>
#include <cupola/data/split.hpp>

#include "support.hpp"

using namespace cupola_tests;

namespace {

/// How often each sample comes at the positions [0, draws).
std::vector<int> frequencies(const std::vector<double>& weights, int draws, std::uint64_t seed = 1) {
    const WeightedOrder order(weights, seed);
    std::vector<SampleOfEpoch> places(static_cast<std::size_t>(draws));
    order.samples_at(0, places);
    std::vector<int> result(weights.size());
    for (const SampleOfEpoch& place : places) ++result[place.index];
    return result;
}

std::string refusal(const std::vector<double>& weights) {
    return message_of<InvalidArgument>([&] { WeightedOrder(weights, 1); });
}

/// A data set of three classes with a label that is none of them.
struct Wrong {
    std::vector<float> values = std::vector<float>(3);
    [[nodiscard]] std::string_view name() const { return "of a wrong label"; }
    [[nodiscard]] std::int64_t size() const { return 3; }
    [[nodiscard]] Shape sample_shape() const { return {1}; }
    [[nodiscard]] std::span<const float> sample(std::int64_t i) const {
        return std::span(values).subspan(static_cast<std::size_t>(i), 1);
    }
    [[nodiscard]] std::int32_t label(std::int64_t i) const { return static_cast<std::int32_t>(i + 1); }
    [[nodiscard]] std::int64_t class_count() const { return 3; }
};

}  // namespace

TEST_CASE("each sample comes as often as its weight says, and one of weight 0 never") {
    constexpr int draws = 200'000;
    const std::vector<std::vector<double>> cases{{1},
                                                 {1, 1, 1},
                                                 {0, 3, 1},
                                                 {5, 0, 0},
                                                 {1e-300, 3e-300},
                                                 {1e308, 1e308, 1.5e308},
                                                 {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
                                                 {1000, 1, 0, 1, 1, 1, 0}};
    for (const std::vector<double>& weights : cases) {
        CAPTURE(weights.size());
        double sum = 0;
        for (const double weight : weights) sum += weight / 1e10;
        const std::vector<int> counts = frequencies(weights, draws);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const double p = weights[i] / 1e10 / sum;
            if (weights[i] == 0) {
                CHECK(counts[i] == 0);
            } else {
                CHECK(std::fabs(counts[i] - draws * p) <= 5 * std::sqrt(draws * p * (1 - p)) + 1e-6);
            }
        }
    }
}

TEST_CASE("samples of weight 0 never come, however the others round") {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        std::vector<double> weights(101);
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const auto words = RandomStream(seed, RngDomain::user, 0, i).words(0);
            weights[i] = words[0] % 2 == 0 ? 0.0 : static_cast<double>(uniform(words[1])) + 1e-3;
        }
        const std::vector<int> counts = frequencies(weights, 5000, seed);
        for (std::size_t i = 0; i < weights.size(); ++i) CHECK((counts[i] == 0 || weights[i] > 0));
    }
}

TEST_CASE("a position has the same sample however it is looked up, and another seed another order") {
    const std::vector<double> weights{1, 2, 3, 4};
    const WeightedOrder order(weights, 9), other(weights, 10);
    std::vector<SampleOfEpoch> together(100), different(100);
    order.samples_at(1'000'000, together);
    other.samples_at(1'000'000, different);
    bool equal = true;
    for (std::int64_t i = 99; i >= 0; --i) {
        std::vector<SampleOfEpoch> one(1);
        order.samples_at(1'000'000 + i, one);
        CHECK(one[0].index == together[static_cast<std::size_t>(i)].index);
        CHECK(one[0].epoch == 1'000'000 + i);
        equal = equal && one[0].index == different[static_cast<std::size_t>(i)].index;
    }
    CHECK_FALSE(equal);
}

TEST_CASE("weights of classes become those of the samples") {
    const std::vector<float> samples(5);
    const std::vector<std::int32_t> labels{0, 2, 0, 0, 2};
    const InMemory data(Shape{1}, samples, labels, 4);
    CHECK(class_weights(data, std::vector<double>{1, 7, 5}) == std::vector<double>{1, 5, 1, 1, 5});
    const std::vector<double> balanced = balanced_weights(data);
    CHECK(balanced[0] * 3 == doctest::Approx(1));
    CHECK(balanced[1] * 2 == doctest::Approx(1));
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(class_weights(data, std::vector<double>{1, 1}));
          }) == "sample 1 of the data set in memory has class 2, and there are 2 weights of classes");
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(class_weights(data, std::vector<double>{1, -1, 1}));
          }) == "the weight of class 1 must be finite and at least 0, not -1");
}

TEST_CASE("a label may be any number without memory for the classes below it, and must be a class of the data set") {
    const std::vector<float> samples(3);
    const std::vector<std::int32_t> labels{7, 2'000'000'000, 7};
    const InMemory any(Shape{1}, samples, {{target_column, {1}, labels}});
    CHECK(balanced_weights(any) == std::vector<double>{0.5, 1, 0.5});
    CHECK(split(any, {.validation = 0.4, .stratified = true}).validation.size() == 1);
    const Wrong wrong;
    const std::string message =
        "the data set of a wrong label has label 3 at sample 2; with 3 classes labels are 0 to 2";
    CHECK(message_of<DataError>([&] { (void)balanced_weights(wrong); }) == message);
    CHECK(message_of<DataError>([&] { (void)class_weights(wrong, std::vector<double>(9, 1.0)); }) == message);
    CHECK(message_of<DataError>([&] { (void)split(wrong, {.stratified = true}); }) == message);
}

TEST_CASE(
    "batches take the samples of the order, the same for any number of workers, and may be larger than the data set") {
    std::vector<float> samples(6);
    std::iota(samples.begin(), samples.end(), 0.0F);
    const std::vector<std::int32_t> labels{0, 0, 0, 0, 0, 1};
    const InMemory data(Shape{1}, samples, labels, 2);
    const WeightedOrder order(balanced_weights(data), 4);
    const BatchOptions options{.batch_size = 100, .replicas = 2, .seed = 4};
    const TrainingBatches<InMemory, IdentityTransform, WeightedOrder> source(data, IdentityTransform{}, options, order);
    static_assert(BatchSource<decltype(TrainingBatches(data, IdentityTransform{}, options, order))>);
    Prefetch waiting(source), working(source, {.workers = 2});
    SerialContext context;
    std::vector<int> counts(2);
    std::vector<SampleOfEpoch> places(100);
    for (std::int64_t step = 3; step < 10; ++step) {
        for (int replica = 0; replica < 2; ++replica) {
            const BatchView one = waiting(step, replica, context), other = working(step, replica, context);
            order.samples_at(step * 200 + replica * 100, places);
            for (std::size_t i = 0; i < 100; ++i) {
                CHECK(one.inputs()[i] == samples[places[i].index]);
                CHECK(one.labels()[i] == labels[places[i].index]);
                CHECK(one.inputs()[i] == other.inputs()[i]);
                ++counts[static_cast<std::size_t>(one.labels()[i])];
            }
        }
    }
    CHECK(std::abs(counts[0] - counts[1]) < 5 * std::sqrt(1400.0));
    const std::vector<double> five(5, 1.0);
    CHECK(message_of<DataError>([&] { TrainingBatches(data, IdentityTransform{}, options, WeightedOrder(five, 1)); }) ==
          "the order is for 5 samples, and the data set in memory has 6");
}

TEST_CASE("weights that are negative, not finite, all 0 or none are rejected") {
    CHECK(refusal({1, -0.5}) == "the weight of sample 1 must be finite and at least 0, not -0.5");
    CHECK(refusal({std::numeric_limits<double>::quiet_NaN()}) ==
          "the weight of sample 0 must be finite and at least 0, not nan");
    CHECK(refusal({1, 1, std::numeric_limits<double>::infinity()}) ==
          "the weight of sample 2 must be finite and at least 0, not inf");
    CHECK(refusal({0, 0, 0}) == "the weights of all 3 samples are 0");
    CHECK(refusal({}) == "the number of weights must be 1 to 4294967295, not 0");
}

TEST_CASE("the description of an order depends on the weights and not on their scale") {
    const auto described = [](const std::vector<double>& weights) { return WeightedOrder(weights, 1).description(); };
    CHECK(described({1, 2, 4}).starts_with("by weights, hash "));
    CHECK(described({1, 2, 4}) == described({2, 4, 8}));
    CHECK(described({1, 2, 4}) != described({1, 4, 2}));
    CHECK(described({1, 2, 4}) != described({1, 2, 4.000001}));
}
