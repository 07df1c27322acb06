// SPDX-License-Identifier: Apache-2.0
//
// metrics::TopK<k>: the fraction of the labels whose class has one of the k largest logits, of equal logits the first:
// exactly k classes count, and TopK<1> is Accuracy. (scikit-learn's top_k_accuracy_score takes the last of equal
// logits, TensorFlow's in_top_k all of them.) A row with a NaN counts as wrong. The outputs are rows of logits, one per
// label. Its result is "top_5_accuracy" for TopK<5>; NaN without labels.
#pragma once

#include <cstdint>
#include <optional>

#include <cupola/core/error.hpp>
#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

template <std::int64_t k>
struct TopK {
    /// A label that is not counted; nor are labels that are not classes.
    std::optional<std::int32_t> ignored_label{};
    std::int64_t correct = 0, counted = 0;

    static constexpr CompileTimeMessage diagnostic(const Shape& output, const ColumnSpec& target) {
        CompileTimeMessage message = impl::class_labels_diagnostic("metrics::TopK", output, target);
        if (message.empty() && (k < 1 || k > output[output.rank - 1])) {
            message << "metrics::TopK<" << k << "> is for 1 to " << output[output.rank - 1] << " of the "
                    << output[output.rank - 1] << " classes";
        }
        return message;
    }
    void begin(const MetricTask&) { correct = counted = 0; }
    void add(const MetricBatch& batch) {
        impl::for_each_label(batch, ignored_label, [&](std::span<const float> logits, std::size_t label) {
            correct += impl::rank_of(logits, label) < k ? 1 : 0;
            ++counted;
        });
    }
    [[nodiscard]] double value() const { return impl::ratio(correct, counted); }
    void report(MetricResults& results) const { results.add(text("top_", k, "_accuracy"), value(), Better::larger); }
};

static_assert(Metric<TopK<5>>);

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI
