// SPDX-License-Identifier: Apache-2.0
//
// metrics::At<"kind", metrics::Accuracy>: a metric of one output of a network with several (Output<"kind"> of
// net/named_values.hpp). Its targets are the column of the same name, or that of a third argument; it must be one that
// the network or a loss reads, and any other does not compile. The results have the name of the output before theirs:
// "kind/accuracy".
#pragma once

#include <string>
#include <string_view>

#include <cupola/core/fixed_string.hpp>
#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace metrics {

template <FixedString output_name, Metric M, FixedString column_name = output_name>
struct At {
    using OfOutput = M;
    static constexpr std::string_view output = output_name, column = column_name;

    M metric{};

    void begin(const MetricTask& task) { metric.begin(task.at(output, column)); }
    void add(const MetricBatch& batch) { metric.add(batch.at(output, column)); }
    void report(MetricResults& results) const {
        MetricResults own;
        metric.report(own);
        for (const MetricValue& each : own.values())
            results.add(std::string(output) + '/' + each.name, each.value,
                        each.larger_is_better ? Better::larger : Better::smaller);
    }
};

}  // namespace metrics

}}  // namespace cupola::CUPOLA_ABI
