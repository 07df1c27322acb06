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
#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric.hpp>

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

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/metrics/confusion_matrix.ipp>
#endif
