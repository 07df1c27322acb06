// SPDX-License-Identifier: Apache-2.0
//
// A metric's result on outputs and targets that a test writes down, given in batches of two samples.
#pragma once

#include <cupola/metrics/metric.hpp>

#include "../standard.hpp"

template <class M>
[[nodiscard]] std::vector<cupola::MetricValue> values_of(const M& metric) {
    cupola::MetricResults results;
    metric.report(results);
    return results.values();
}

/// The first result of the metric for samples with outputs and targets of these extents.
template <class M, class Target>
double result_of(M& metric, const cupola::Shape& output, const std::vector<float>& outputs,
                 const cupola::Shape& target_shape, const std::vector<Target>& targets, std::int64_t batch = 2) {
    const cupola::ColumnSpec spec{"target", cupola::element_type_of<Target>, target_shape};
    const auto samples = static_cast<std::int64_t>(outputs.size()) / output.size();
    metric.begin({output, spec});
    for (std::int64_t i = 0; i < samples; i += batch) {
        const std::int64_t size = std::min(batch, samples - i);
        metric.add({.size = size,
                    .output_shape = output,
                    .outputs = std::span(outputs).subspan(static_cast<std::size_t>(i * output.size()),
                                                          static_cast<std::size_t>(size * output.size())),
                    .targets = cupola::BatchView(size, {{spec, targets.data() + i * target_shape.size()}})});
    }
    return values_of(metric)[0].value;
}
