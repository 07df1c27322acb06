// SPDX-License-Identifier: Apache-2.0
//
// metrics::ConfusionMatrix: how often each class was predicted for the labels of each class. The prediction is the
// class of the largest logit, of equal logits the first. A variable is passed to evaluate() and read afterwards:
//
//   metrics::ConfusionMatrix matrix;
//   evaluate(training, test, matrix);
//   std::puts(to_string(matrix).c_str());
//
// Rows are labels and columns predictions, as in scikit-learn's confusion_matrix. Its result is "balanced_accuracy",
// the mean of the recalls of the classes that have labels (balanced_accuracy_score); NaN without labels. A label whose
// logits contain a NaN has no prediction: it is in no row, and counts as a wrong prediction in the recall of its class.
// Memory: 8 bytes per pair of classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <cupola/core/finite.hpp>
#include <cupola/metrics/impl/class_labels.hpp>
#include <cupola/metrics/metric.hpp>

#ifndef CUPOLA_OPS
#include <algorithm>

#include <cupola/core/error.hpp>
#endif

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

struct ConfusionMatrix {
    /// More would need over 8.6 GB.
    static constexpr std::int64_t max_classes = 32'768;
    /// A label that is not counted; nor are labels that are not classes.
    std::optional<std::int32_t> ignored_label{};
    std::int64_t classes = 0;
    /// `classes` rows, one per class of the labels, of `classes` numbers each, one per predicted class.
    std::vector<std::int64_t> counts{};
    /// The number of labels whose logits contain a NaN, so that there is no prediction: of all classes, and per class.
    /// They are in no row.
    std::int64_t without_prediction = 0;
    std::vector<std::int64_t> unpredicted{};

    static constexpr CompileTimeMessage diagnostic(const Shape& output, const ColumnSpec& target) {
        return impl::class_labels_diagnostic("metrics::ConfusionMatrix", output, target);
    }
    /// Throws InvalidArgument for more classes than `max_classes`.
    void begin(const MetricTask& task);
    void add(const MetricBatch& batch);
    void report(MetricResults& results) const { results.add("balanced_accuracy", balanced_accuracy(), Better::larger); }

    /// The labels of class `actual` for which class `predicted` was predicted. Throws InvalidArgument for a number that
    /// is not a class.
    [[nodiscard]] std::int64_t count(std::int64_t actual, std::int64_t predicted) const;
    /// The fraction of the labels of a class that were predicted right; NaN without such labels (scikit-learn: 0).
    [[nodiscard]] double recall(std::int64_t actual) const;
    /// The fraction of the predictions of a class that were right; NaN without such predictions (scikit-learn: 0).
    [[nodiscard]] double precision(std::int64_t predicted) const;
    [[nodiscard]] double balanced_accuracy() const;
};

static_assert(Metric<ConfusionMatrix>);

/// One line per class of the labels, with the counts of the predicted classes.
[[nodiscard]] std::string to_string(const ConfusionMatrix& matrix);

#ifndef CUPOLA_OPS

CUPOLA_INLINE void ConfusionMatrix::begin(const MetricTask& task) {
    classes = task.output[task.output.rank - 1];
    require(classes <= max_classes, "metrics::ConfusionMatrix is for at most ", max_classes, " classes, not ", classes);
    const auto rows = static_cast<std::size_t>(classes);
    counts.assign(rows * rows, 0);
    unpredicted.assign(rows, 0);
    without_prediction = 0;
}

CUPOLA_INLINE void ConfusionMatrix::add(const MetricBatch& batch) {
    impl::for_each_label(batch, ignored_label, [&](std::span<const float> logits, std::size_t label) {
        const std::size_t predicted = impl::largest_of(logits);
        if (predicted == logits.size()) {
            ++without_prediction;
            ++unpredicted[label];
        } else {
            ++counts[label * logits.size() + predicted];
        }
    });
}

CUPOLA_INLINE std::int64_t ConfusionMatrix::count(std::int64_t actual, std::int64_t predicted) const {
    for (const std::int64_t each : {actual, predicted})
        require(each >= 0 && each < classes, "class ", each, " is out of range: the number of classes is ", classes);
    return counts[static_cast<std::size_t>(actual * classes + predicted)];
}

CUPOLA_INLINE double ConfusionMatrix::recall(std::int64_t actual) const {
    const std::int64_t right = count(actual, actual);
    std::int64_t all = unpredicted[static_cast<std::size_t>(actual)];
    for (std::int64_t c = 0; c < classes; ++c) all += count(actual, c);
    return impl::ratio(right, all);
}

CUPOLA_INLINE double ConfusionMatrix::precision(std::int64_t predicted) const {
    std::int64_t all = 0;
    for (std::int64_t c = 0; c < classes; ++c) all += count(c, predicted);
    return impl::ratio(count(predicted, predicted), all);
}

CUPOLA_INLINE double ConfusionMatrix::balanced_accuracy() const {
    double sum = 0;
    std::int64_t with_labels = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
        const double each = recall(c);
        if (impl::is_nan(each)) continue;
        sum += each;
        ++with_labels;
    }
    return sum / static_cast<double>(with_labels);
}

CUPOLA_INLINE std::string to_string(const ConfusionMatrix& matrix) {
    std::size_t width = 1;
    for (const std::int64_t each : matrix.counts) width = std::max(width, text(each).size());
    const auto padded = [&](std::int64_t number, std::size_t to) {
        const std::string digits = text(number);
        return std::string(to - std::min(to, digits.size()), ' ') + digits;
    };
    const std::size_t first = text(matrix.classes).size();
    std::string lines;
    for (std::int64_t actual = 0; actual < matrix.classes; ++actual) {
        lines += padded(actual, first) + ':';
        for (std::int64_t predicted = 0; predicted < matrix.classes; ++predicted)
            lines += ' ' + padded(matrix.count(actual, predicted), width);
        lines += '\n';
    }
    return lines;
}

#endif

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI
