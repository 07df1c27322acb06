// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/metrics/metric.hpp.
#pragma once

#include <cupola/metrics/metric.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL void MetricResults::add(std::string_view name, double value, Better better) {
    require(!name.empty() && name != "loss" && name != "validation_loss", "a metric cannot have the name \"", name,
            "\"");
    require(impl::find_metric(values_, name) == nullptr, "two metrics have the name ", name);
    values_.push_back({.name = std::string(name), .value = value, .larger_is_better = better == Better::larger});
}

CUPOLA_DECL MetricTask MetricTask::at(std::string_view output_name, std::string_view column) const {
    const ColumnSpec* const found = columns.find(column);
    require(found != nullptr, "a metric reads the column ", column, ", and the losses read: ", names_of(columns));
    for (const MetricOutput& each : all_outputs) {
        if (each.name != output_name) continue;
        return {each.shape, {target_column, found->type, found->shape}, all_outputs, columns};
    }
    impl::throw_joined<InvalidArgument>(
        {"a metric reads the output ", output_name, ", which the network does not have"});
}

namespace impl {

CUPOLA_DECL Metrics::Metrics() = default;
CUPOLA_DECL Metrics::~Metrics() = default;

CUPOLA_DECL void Metrics::add(Entry entry) { entries_.push_back(std::move(entry)); }

CUPOLA_DECL void Metrics::begin(std::span<const LayerInfo> layers, std::span<const RequiredColumn> columns) {
    MetricFeed::begin(layers, columns);
    const NetworkOutputs outputs(layers);
    MetricTask task{.output = outputs[outputs.size() - 1].shape, .target = columns.back().column};
    for (std::size_t k = 0; k < outputs.size(); ++k) task.all_outputs.push_back({outputs[k].name, outputs[k].shape});
    for (const RequiredColumn& each : columns) task.columns.push_back(each.column);
    for (const Entry& each : entries_) each.begin(each.object, task);
}

CUPOLA_DECL void Metrics::see(const MetricBatch& batch) {
    for (const Entry& each : entries_) each.add(each.object, batch);
}

CUPOLA_DECL std::vector<MetricValue> Metrics::values() const {
    MetricResults results;
    for (const Entry& each : entries_) each.report(each.object, results);
    return std::move(results.values());
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
