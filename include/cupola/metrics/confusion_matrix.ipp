// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/metrics/confusion_matrix.hpp.
#pragma once

#include <algorithm>

#include <cupola/core/error.hpp>
#include <cupola/metrics/confusion_matrix.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

CUPOLA_DECL void ConfusionMatrix::begin(const MetricTask& task) {
    classes = task.output[task.output.rank - 1];
    require(classes <= max_classes, "metrics::ConfusionMatrix is for at most ", max_classes, " classes, not ", classes);
    const auto rows = static_cast<std::size_t>(classes);
    counts.assign(rows * rows, 0);
    unpredicted.assign(rows, 0);
    without_prediction = 0;
}

CUPOLA_DECL void ConfusionMatrix::add(const MetricBatch& batch) {
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

CUPOLA_DECL std::int64_t ConfusionMatrix::count(std::int64_t actual, std::int64_t predicted) const {
    for (const std::int64_t each : {actual, predicted})
        require(each >= 0 && each < classes, "class ", each, " is out of range: the number of classes is ", classes);
    return counts[static_cast<std::size_t>(actual * classes + predicted)];
}

CUPOLA_DECL double ConfusionMatrix::recall(std::int64_t actual) const {
    const std::int64_t right = count(actual, actual);
    std::int64_t all = unpredicted[static_cast<std::size_t>(actual)];
    for (std::int64_t c = 0; c < classes; ++c) all += count(actual, c);
    return impl::ratio(right, all);
}

CUPOLA_DECL double ConfusionMatrix::precision(std::int64_t predicted) const {
    std::int64_t all = 0;
    for (std::int64_t c = 0; c < classes; ++c) all += count(c, predicted);
    return impl::ratio(count(predicted, predicted), all);
}

CUPOLA_DECL double ConfusionMatrix::balanced_accuracy() const {
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

CUPOLA_DECL std::string to_string(const ConfusionMatrix& matrix) {
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

}}}  // namespace cupola::CUPOLA_ABI::metrics
