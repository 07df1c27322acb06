// SPDX-License-Identifier: Apache-2.0
//
// metrics::RSquared: the coefficient of determination,
//
//   1 - sum (t - x)^2 / sum (t - mean t)^2
//
// for outputs x and targets t. With several outputs the mean is that of each output, and both sums run over all of
// them: scikit-learn's r2_score with multioutput="variance_weighted" and force_finite=False, where the targets of each
// output differ. An output whose targets are all equal counts by its residuals, which r2_score leaves out. The means
// are updated sample by sample (Welford 1962), in double, so the result has the same bits for any batch size. Its name
// is "r_squared"; it is NaN if no target of any output differs from its mean: no fraction of a variance of 0 can be
// explained (r2_score has 1 or 0 there by default). Memory: 8 bytes per element of an output.
#pragma once

#include <cstdint>
#include <vector>

#include <cupola/core/finite.hpp>
#include <cupola/metrics/impl/targets.hpp>
#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

struct RSquared {
    /// The means of the targets so far, and both sums.
    std::vector<double> means{};
    double residual = 0, total = 0;
    std::int64_t samples = 0;

    static constexpr CompileTimeMessage diagnostic(const Shape& output, const ColumnSpec& target) {
        return impl::float_targets_diagnostic("metrics::RSquared", output, target);
    }
    void begin(const MetricTask& task);
    void add(const MetricBatch& batch);
    [[nodiscard]] double value() const;
    void report(MetricResults& results) const { results.add("r_squared", value(), Better::larger); }
};

static_assert(Metric<RSquared>);

inline void RSquared::begin(const MetricTask& task) {
    means.assign(static_cast<std::size_t>(task.output.size()), 0.0);
    residual = total = 0;
    samples = 0;
}

inline void RSquared::add(const MetricBatch& batch) {
    const std::span<const float> targets = batch.target<float>();
    for (std::size_t i = 0; i < targets.size();) {
        ++samples;
        for (double& mean : means) {
            const double target = static_cast<double>(targets[i]), off = target - mean,
                         error = target - static_cast<double>(batch.outputs[i]);
            mean += off / static_cast<double>(samples);
            total += off * (target - mean);
            residual += error * error;
            ++i;
        }
    }
}

inline double RSquared::value() const { return total > 0 ? 1 - residual / total : impl::not_a_number<double>(); }

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI
