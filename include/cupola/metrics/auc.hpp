// SPDX-License-Identifier: Apache-2.0
//
// metrics::Auc: the area under the ROC curve: the probability that a positive label has a higher score than a negative
// one, where equal scores count a half (Mann, Whitney 1947). Exact, by sorting all scores. The outputs are
//
//   one logit per target of 0 or 1 (float or int32): the logit is the score;
//   rows of two or more logits, one per label: the score is the logarithm of the odds of class `positive` against all
//   others.
//
// Its result is "auc"; NaN where positive or negative labels are missing, or a score is NaN. It is scikit-learn's
// roc_auc_score of labels `positive` against all others; the odds have the order of the probabilities, and remain
// different where two probabilities are rounded to the same number. Outputs of several elements, each with a target,
// are one list of scores (average="micro"). Memory: 8 bytes per target of the evaluation, twice that while the result
// is computed.
#pragma once

#include <cstdint>
#include <vector>

#include <cupola/core/finite.hpp>
#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

struct Auc {
    /// The class that is positive where there are two or more logits.
    std::int32_t positive = 1;
    /// The scores of the positive and of the negative labels.
    std::vector<double> positives{}, negatives{};
    bool has_nan = false;

    static constexpr CompileTimeMessage diagnostic(const Shape& output, const ColumnSpec& target) {
        if (target.shape == output) return {};
        return impl::class_labels_diagnostic("metrics::Auc", output, target);
    }
    /// Throws InvalidArgument if `positive` is not a class.
    void begin(const MetricTask& task);
    /// Throws InvalidArgument for a target of a single logit that is neither 0 nor 1.
    void add(const MetricBatch& batch);
    [[nodiscard]] double value() const;
    void report(MetricResults& results) const { results.add("auc", value(), Better::larger); }

private:
    void add_score(double score, bool is_positive);
};

static_assert(Metric<Auc>);

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/metrics/auc.ipp>
#endif
