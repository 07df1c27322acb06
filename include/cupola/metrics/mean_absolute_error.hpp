// SPDX-License-Identifier: Apache-2.0
//
// metrics::MeanAbsoluteError: the mean over all elements of |output - target|, added in double in the order of the
// samples, so that it has the same bits for any batch size. Its result is "mean_absolute_error"; NaN without elements.
#pragma once

#include <cmath>
#include <cstdint>

#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

struct MeanAbsoluteError {
    double sum = 0;
    std::int64_t elements = 0;

    static constexpr CompileTimeMessage diagnostic(const Shape& output, const ColumnSpec& target) {
        return impl::float_targets_diagnostic("metrics::MeanAbsoluteError", output, target);
    }
    void begin(const MetricTask&) {
        sum = 0;
        elements = 0;
    }
    void add(const MetricBatch& batch);
    [[nodiscard]] double value() const { return sum / static_cast<double>(elements); }
    void report(MetricResults& results) const { results.add("mean_absolute_error", value(), Better::smaller); }
};

static_assert(Metric<MeanAbsoluteError>);

inline void MeanAbsoluteError::add(const MetricBatch& batch) {
    const std::span<const float> targets = batch.target<float>();
    for (std::size_t i = 0; i < targets.size(); ++i)
        sum += std::abs(static_cast<double>(batch.outputs[i]) - static_cast<double>(targets[i]));
    elements += static_cast<std::int64_t>(targets.size());
}

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI
