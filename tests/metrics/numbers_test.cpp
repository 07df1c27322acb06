// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/metrics/auc.hpp, cupola/metrics/mean_absolute_error.hpp, cupola/metrics/r_squared.hpp
#include "../test.hpp"

#include <cupola/core/philox.hpp>
#include <cupola/metrics.hpp>

#include "metrics/batch_of.hpp"
#include "throws_with.hpp"

namespace {

std::vector<float> numbers(std::uint64_t count, std::uint64_t seed, float scale = 1, float shift = 0) {
    std::vector<float> result;
    for (std::uint64_t i = 0; i < count; ++i)
        result.push_back(shift + scale * uniform(RandomStream(seed, RngDomain::user, 0, i).words(0)[0]));
    return result;
}

/// The definition: pairs in the right order, equal ones by half.
double auc_by_pairs(const std::vector<double>& scores, const std::vector<int>& positive) {
    double right = 0, pairs = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        for (std::size_t j = 0; j < scores.size(); ++j) {
            if (positive[i] != 1 || positive[j] != 0) continue;
            right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
            pairs += 1;
        }
    }
    return right / pairs;
}

}  // namespace

TEST_CASE("the mean absolute error is the mean over all elements, with the same bits for any batch size") {
    metrics::MeanAbsoluteError error;
    CHECK(result_of(error, {2}, {1, 2, 3, 4, 5, 6}, {2}, std::vector<float>{0, 4, 3, 4, 5.5F, 5}) ==
          (1 + 2 + 0 + 0 + 0.5 + 1) / 6);
    CHECK(values_of(error)[0].name == "mean_absolute_error");
    CHECK(!values_of(error)[0].larger_is_better);
    const std::vector<float> outputs = numbers(3000, 1), targets = numbers(3000, 2, 1e4F);
    const double by_two = result_of(error, {3}, outputs, {3}, targets);
    CHECK(result_of(error, {3}, outputs, {3}, targets, 7) == by_two);
    CHECK(result_of(error, {3}, outputs, {3}, targets, 1000) == by_two);
    error.begin({{3}, {"target", ElementType::float32, {3}}});
    CHECK(std::isnan(error.value()));
}

TEST_CASE("R squared is that of its definition in two passes, with the same bits for any batch size") {
    // Far from 0, where a difference of sums of squares has no digits.
    const std::vector<float> targets = numbers(600, 3, 2, 5000), noise = numbers(600, 4, 0.5F);
    std::vector<float> outputs = targets;
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] += noise[i];
    double mean[3] = {}, residual = 0, total = 0;
    for (std::size_t i = 0; i < targets.size(); ++i) mean[i % 3] += static_cast<double>(targets[i]) / 200;
    for (std::size_t i = 0; i < targets.size(); ++i) {
        const double error = static_cast<double>(targets[i]) - static_cast<double>(outputs[i]),
                     off = static_cast<double>(targets[i]) - mean[i % 3];
        residual += error * error;
        total += off * off;
    }
    metrics::RSquared r_squared;
    const double by_two = result_of(r_squared, {3}, outputs, {3}, targets);
    CHECK(by_two == doctest::Approx(1 - residual / total).epsilon(1e-9));
    CHECK(result_of(r_squared, {3}, outputs, {3}, targets, 13) == by_two);
    CHECK(result_of(r_squared, {3}, targets, {3}, targets) == 1);
    CHECK(values_of(r_squared)[0].name == "r_squared");
    CHECK(values_of(r_squared)[0].larger_is_better);
    const std::vector<float> means(2, 2.0F);
    CHECK(result_of(r_squared, {1}, means, {1}, std::vector<float>{1, 3}) == 0);
    CHECK(std::isnan(result_of(r_squared, {1}, {1, 2}, {1}, std::vector<float>{4, 4})));
}

TEST_CASE("an output whose targets are equal counts by its residuals in R squared, and alone has none") {
    metrics::RSquared r_squared;
    // scikit-learn's r2_score with multioutput="variance_weighted".
    CHECK(result_of(r_squared, {2}, {1.5F, 6, 2, 7, 3, 9}, {2}, std::vector<float>{1, 7, 2, 9, 4, 8}) ==
          doctest::Approx(1 - 7.25 / (14.0 / 3 + 2)));
    CHECK(result_of(r_squared, {2}, {1.5F, 6, 2, 7, 3, 9}, {2}, std::vector<float>{1, 7, 2, 7, 4, 7}) ==
          doctest::Approx(1 - 6.25 / (14.0 / 3)));
    CHECK(std::isnan(result_of(r_squared, {1}, {4, 4}, {1}, std::vector<float>{4, 4})));
    CHECK(std::isnan(result_of(r_squared, {1}, {3}, {1}, std::vector<float>{3})));
    CHECK(result_of(r_squared, {1}, {9, 1}, {1}, std::vector<float>{1, 2}) == -128 - 1);
}

TEST_CASE("the area under the ROC curve is exact, with equal scores by half") {
    metrics::Auc auc;
    CHECK(result_of(auc, {1}, {0.1F, 0.4F, 0.35F, 0.8F}, {1}, std::vector<float>{0, 0, 1, 1}) == 0.75);
    CHECK(result_of(auc, {1}, {1, 1, 1, 1}, {1}, std::vector<std::int32_t>{0, 1, 0, 1}) == 0.5);
    CHECK(result_of(auc, {1}, {1, 2, 3, 4}, {1}, std::vector<std::int32_t>{0, 0, 1, 1}) == 1);
    CHECK(result_of(auc, {1}, {4, 3, 2, 1}, {1}, std::vector<std::int32_t>{0, 0, 1, 1}) == 0);
    CHECK(values_of(auc)[0].name == "auc");

    std::vector<float> outputs = numbers(501, 5, 20);
    std::vector<std::int32_t> labels;
    std::vector<double> scores;
    std::vector<int> positive;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        outputs[i] = std::floor(outputs[i]);  // many are equal
        labels.push_back(outputs[i] + 10 * numbers(1, 100 + i)[0] > 15 ? 1 : 0);
        scores.push_back(outputs[i]);
        positive.push_back(labels.back());
    }
    CHECK(result_of(auc, {1}, outputs, {1}, labels) == doctest::Approx(auc_by_pairs(scores, positive)).epsilon(1e-14));
}

TEST_CASE("with several logits the score is the logarithm of the odds of the positive class") {
    const std::vector<float> logits = numbers(300, 6, 4);
    std::vector<std::int32_t> labels;
    std::vector<double> scores;
    std::vector<int> positive;
    for (std::size_t i = 0; i < 100; ++i) {
        double total = 0;
        for (std::size_t c = 0; c < 3; ++c) total += std::exp(static_cast<double>(logits[3 * i + c]));
        scores.push_back(std::exp(static_cast<double>(logits[3 * i + 2])) / total);  // in the order of the odds
        labels.push_back(static_cast<std::int32_t>(i % 3));
        positive.push_back(labels.back() == 2 ? 1 : 0);
    }
    metrics::Auc auc{.positive = 2};
    CHECK(result_of(auc, {3}, logits, {1}, labels) == doctest::Approx(auc_by_pairs(scores, positive)).epsilon(1e-14));
    // A label that is no class is one that the loss ignores.
    CHECK(result_of(auc, {3}, {0, 0, 1, 0, 0, 2, 9, 9, 9}, {1}, std::vector<std::int32_t>{1, 2, -1}) == 1);
    CHECK(message_of<InvalidArgument>([] {
              metrics::Auc fourth{.positive = 3};
              fourth.begin({{3}, {"target", ElementType::int32, {1}}});
          }) == "the positive class of metrics::Auc is 3, and the number of classes is 3");
}

TEST_CASE("equal scores count a half, and several outputs are one list of scores") {
    metrics::Auc auc;
    // scikit-learn's roc_auc_score([0, 1, 0, 1, 1], [0.5, 0.5, 0.2, 0.2, 0.9]).
    CHECK(result_of(auc, {1}, {0.5F, 0.5F, 0.2F, 0.2F, 0.9F}, {1}, std::vector<float>{0, 1, 0, 1, 1}) ==
          doctest::Approx(2.0 / 3));
    CHECK(result_of(auc, {5}, {0.5F, 0.5F, 0.2F, 0.2F, 0.9F}, {5}, std::vector<float>{0, 1, 0, 1, 1}) ==
          doctest::Approx(2.0 / 3));
    // Probabilities of 1 in floats, and different odds.
    CHECK(result_of(auc, {2}, {0, 40, 0, 50}, {1}, std::vector<std::int32_t>{0, 1}) == 1);
}

TEST_CASE("without one of the two classes, or with a score that is NaN, the area is NaN") {
    metrics::Auc auc;
    CHECK(std::isnan(result_of(auc, {1}, {1, 2}, {1}, std::vector<float>{1, 1})));
    CHECK(std::isnan(result_of(auc, {1}, {1, 2}, {1}, std::vector<float>{0, 0})));
    CHECK(std::isnan(result_of(auc, {1}, {1, std::numeric_limits<float>::quiet_NaN()}, {1}, std::vector<float>{0, 1})));
    CHECK(result_of(auc, {1}, {1, 2}, {1}, std::vector<float>{0, 1}) == 1);
    CHECK(message_of<InvalidArgument>([&] {
              result_of(auc, {1}, {1, 2}, {1}, std::vector<std::int32_t>{0, 2});
          }) == "a binary metric needs targets of 0 and 1, and element 1 of a batch's target is 2");
    CHECK(metrics::Auc::diagnostic({1}, {"target", ElementType::int32, {1}}).empty());
    CHECK(metrics::Auc::diagnostic({2}, {"target", ElementType::int32, {1}}).empty());
    CHECK(metrics::Auc::diagnostic({4}, {"target", ElementType::float32, {4}}).empty());
    CHECK(!metrics::Auc::diagnostic({4}, {"target", ElementType::float32, {1}}).empty());
}
