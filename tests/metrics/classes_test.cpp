// SPDX-License-Identifier: Apache-2.0
// Covers: cupola/metrics/accuracy.hpp, cupola/metrics/binary_accuracy.hpp, cupola/metrics/confusion_matrix.hpp
// Covers: cupola/metrics/top_k.hpp
#include "../test.hpp"

#include <cupola/metrics.hpp>

#include "metrics/batch_of.hpp"
#include "throws_with.hpp"

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
const ColumnSpec label{"target", ElementType::int32, {1}};

/// Five samples of three classes: right, right among equal ones, third, second, and wrong because of a NaN.
const std::vector<float> logits = {0, 5, 1, 2, 2, 1, 3, 2, 1, 7, 8, 6, not_a_number, 9, 0};
const std::vector<std::int32_t> labels = {1, 0, 2, 0, 1};

}  // namespace

TEST_CASE("accuracy counts labels whose logit is the largest, of equal ones the first") {
    metrics::Accuracy accuracy;
    CHECK(result_of(accuracy, {3}, logits, {1}, labels) == doctest::Approx(2.0 / 5));
    CHECK(accuracy.correct == 2);
    CHECK(accuracy.counted == 5);
    CHECK(values_of(accuracy)[0].name == "accuracy");
    CHECK(values_of(accuracy)[0].larger_is_better);
    // Again: what was added before is forgotten.
    CHECK(result_of(accuracy, {3}, {1, 0, 0}, {1}, std::vector<std::int32_t>{0}) == 1);
    accuracy.begin({{3}, label});
    CHECK(std::isnan(accuracy.value()));
}

TEST_CASE("labels of positions are counted each, and labels that are ignored or no class are not counted") {
    const std::vector<float> two_positions = {1, 0, 0, 1, 1, 0, 1, 0};  // two samples of two positions
    metrics::Accuracy accuracy;
    CHECK(result_of(accuracy, {2, 1, 2}, two_positions, {2, 1}, std::vector<std::int32_t>{0, 1, 1, -1}) ==
          doctest::Approx(2.0 / 3));
    metrics::Accuracy without_ones{.ignored_label = 1};
    CHECK(result_of(without_ones, {2, 1, 2}, two_positions, {2, 1}, std::vector<std::int32_t>{0, 1, 1, 7}) == 1);
    CHECK(without_ones.counted == 1);
}

TEST_CASE("top-k counts labels with one of the k largest logits") {
    metrics::TopK<1> top_1;
    metrics::TopK<2> top_2;
    metrics::TopK<3> top_3;
    CHECK(result_of(top_1, {3}, logits, {1}, labels) == doctest::Approx(2.0 / 5));
    CHECK(result_of(top_2, {3}, logits, {1}, labels) == doctest::Approx(3.0 / 5));
    CHECK(result_of(top_3, {3}, logits, {1}, labels) == doctest::Approx(4.0 / 5));  // never with a NaN
    CHECK(values_of(top_2)[0].name == "top_2_accuracy");
    // With equal logits the first are taken, so that exactly k classes count.
    metrics::TopK<2> of_equal;
    CHECK(result_of(of_equal, {4}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}, std::vector<std::int32_t>{0, 1, 2}) ==
          doctest::Approx(2.0 / 3));
}

TEST_CASE("a confusion matrix has a row per class of the labels and a column per predicted class") {
    metrics::ConfusionMatrix matrix;
    result_of(matrix, {3}, logits, {1}, labels);
    CHECK(matrix.counts == std::vector<std::int64_t>{1, 1, 0, 0, 1, 0, 1, 0, 0});
    CHECK(matrix.without_prediction == 1);
    CHECK(matrix.count(2, 0) == 1);
    CHECK(matrix.recall(0) == 0.5);
    CHECK(matrix.recall(1) == 0.5);  // the other has no prediction
    CHECK(matrix.unpredicted == std::vector<std::int64_t>{0, 1, 0});
    CHECK(matrix.recall(2) == 0);
    CHECK(matrix.precision(0) == 0.5);
    CHECK(std::isnan(matrix.precision(2)));
    CHECK(values_of(matrix)[0].name == "balanced_accuracy");
    CHECK(values_of(matrix)[0].value == doctest::Approx(1.0 / 3));
    CHECK(to_string(matrix) == "0: 1 1 0\n1: 0 1 0\n2: 1 0 0\n");
    CHECK(message_of<InvalidArgument>([&] { (void)matrix.count(0, 3); }) ==
          "class 3 is out of range: the number of classes is 3");
    CHECK(message_of<InvalidArgument>([&] { (void)matrix.recall(-1); }) ==
          "class -1 is out of range: the number of classes is 3");
    // A class without labels is not in the mean of the recalls.
    CHECK(result_of(matrix, {3}, {1, 0, 0, 1, 0, 0}, {1}, std::vector<std::int32_t>{0, 1}) == doctest::Approx(0.5));
    matrix.counts[3] = 100;
    CHECK(to_string(matrix) == "0:   1   0   0\n1: 100   0   0\n2:   0   0   0\n");
}

TEST_CASE("without labels there is no balanced accuracy, and too many classes for a matrix are an error") {
    metrics::ConfusionMatrix matrix;
    CHECK(std::isnan(result_of(matrix, {3}, {1, 0, 0}, {1}, std::vector<std::int32_t>{-1})));
    CHECK(message_of<InvalidArgument>([&] {
              matrix.begin({{2'000'000'000}, label});
          }) == "metrics::ConfusionMatrix is for at most 32768 classes, not 2000000000");
}

TEST_CASE("of equal logits the first count, and a row with a NaN is wrong, as for the accuracy") {
    const std::vector<float> equal = {1, 1, 1, 1, 1, 1, 1, 1, 1}, nan = {not_a_number, 9, 1};
    metrics::TopK<1> top_1;
    metrics::TopK<3> top_3;
    metrics::Accuracy accuracy;
    metrics::ConfusionMatrix matrix;
    const std::vector<std::int32_t> each{0, 1, 2};
    CHECK(result_of(top_1, {3}, equal, {1}, each) == doctest::Approx(1.0 / 3));
    CHECK(result_of(accuracy, {3}, equal, {1}, each) == doctest::Approx(1.0 / 3));
    CHECK(result_of(matrix, {3}, equal, {1}, each) == doctest::Approx(1.0 / 3));
    CHECK(matrix.counts == std::vector<std::int64_t>{1, 0, 0, 1, 0, 0, 1, 0, 0});
    for (const std::int32_t of : each) {
        const std::vector<std::int32_t> one{of};
        CHECK(result_of(top_3, {3}, nan, {1}, one) == 0);
        CHECK(result_of(accuracy, {3}, nan, {1}, one) == 0);
        CHECK(result_of(matrix, {3}, nan, {1}, one) == 0);
    }
}

TEST_CASE("binary accuracy compares each element with its threshold") {
    const std::vector<float> outputs = {0.5F, -1, 0, 2, not_a_number, 0.25F}, targets = {1, 0, 0, 0, 1, 1};
    metrics::BinaryAccuracy of_logits, of_probabilities{.threshold = 0.4F};
    CHECK(result_of(of_logits, {2}, outputs, {2}, targets) == doctest::Approx(4.0 / 6));
    CHECK(result_of(of_probabilities, {2}, outputs, {2}, targets) == doctest::Approx(3.0 / 6));
    CHECK(values_of(of_logits)[0].name == "binary_accuracy");
    CHECK(message_of<InvalidArgument>([&] {
              result_of(of_logits, {1}, {1, 2}, {1}, std::vector<float>{1, 0.5F});
          }) == "a binary metric needs targets of 0 and 1, and element 1 of a batch's target is 0.5");
}

TEST_CASE("metrics of classes say which outputs and targets they are for") {
    const auto text_of = [](const CompileTimeMessage& message) {
        return std::string(message.characters, message.size);
    };
    const ColumnSpec number{"target", ElementType::float32, {3}}, per_position{"target", ElementType::int32, {2, 2}};
    CHECK(metrics::Accuracy::diagnostic({3}, label).empty());
    CHECK(metrics::Accuracy::diagnostic({2, 2, 5}, per_position).empty());
    CHECK(text_of(metrics::Accuracy::diagnostic({3}, number)) ==
          "metrics::Accuracy compares logits of two or more classes with labels (int32), one per row of logits; the "
          "output is 3, and the loss reads float32 3");
    CHECK(!metrics::Accuracy::diagnostic({1}, label).empty());
    CHECK(!metrics::ConfusionMatrix::diagnostic({2, 2, 5}, label).empty());
    CHECK(metrics::TopK<3>::diagnostic({3}, label).empty());
    CHECK(text_of(metrics::TopK<5>::diagnostic({3}, label)) == "metrics::TopK<5> is for 1 to 3 of the 3 classes");
    CHECK(!metrics::TopK<0>::diagnostic({3}, label).empty());
    CHECK(metrics::BinaryAccuracy::diagnostic({3}, number).empty());
    CHECK(text_of(metrics::BinaryAccuracy::diagnostic({3}, label)) ==
          "metrics::BinaryAccuracy compares the output with targets (float32) of its extents; the output is 3, and the "
          "loss reads int32 1");
}
