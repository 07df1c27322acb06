// SPDX-License-Identifier: Apache-2.0
//
// metrics::Accuracy: the fraction of the labels whose class has the largest logit, of equal logits the first. The
// outputs are rows of logits, one per label; labels per position are counted each. Its result is "accuracy"; NaN
// without labels.
#pragma once

#include <cstdint>
#include <optional>

#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

struct Accuracy {
    /// A label that is not counted; nor are labels that are not classes.
    std::optional<std::int32_t> ignored_label{};
    std::int64_t correct = 0, counted = 0;

    static constexpr CompileTimeMessage diagnostic(const Shape& output, const ColumnSpec& target) {
        return impl::class_labels_diagnostic("metrics::Accuracy", output, target);
    }
    void begin(const MetricTask&) { correct = counted = 0; }
    void add(const MetricBatch& batch);
    [[nodiscard]] double value() const { return impl::ratio(correct, counted); }
    void report(MetricResults& results) const { results.add("accuracy", value(), Better::larger); }
};

static_assert(Metric<Accuracy>);

inline void Accuracy::add(const MetricBatch& batch) {
    impl::for_each_label(batch, ignored_label, [&](std::span<const float> logits, std::size_t label) {
        correct += impl::rank_of(logits, label) == 0 ? 1 : 0;
        ++counted;
    });
}

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI
