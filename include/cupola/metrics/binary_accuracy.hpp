// SPDX-License-Identifier: Apache-2.0
//
// metrics::BinaryAccuracy: the fraction of the elements of the output that agree with their target, 0 or 1: above the
// threshold if the target is 1, and not above it if the target is 0. The targets are floats of the output's extents, as
// of a binary cross-entropy. Its result is "binary_accuracy"; NaN without targets.
#pragma once

#include <cstdint>

#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

struct BinaryAccuracy {
    /// 0 is for logits: their probability is then 0.5.
    float threshold = 0;
    std::int64_t correct = 0, counted = 0;

    static constexpr CompileTimeMessage diagnostic(const Shape& output, const ColumnSpec& target) {
        return impl::float_targets_diagnostic("metrics::BinaryAccuracy", output, target);
    }
    void begin(const MetricTask&) { correct = counted = 0; }
    /// Throws InvalidArgument for a target that is neither 0 nor 1.
    void add(const MetricBatch& batch);
    [[nodiscard]] double value() const { return impl::ratio(correct, counted); }
    void report(MetricResults& results) const { results.add("binary_accuracy", value(), Better::larger); }
};

static_assert(Metric<BinaryAccuracy>);

inline void BinaryAccuracy::add(const MetricBatch& batch) {
    impl::for_each_binary(batch, [&](float output, bool positive) {
        correct += positive ? output > threshold : output <= threshold;
        ++counted;
    });
}

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI
