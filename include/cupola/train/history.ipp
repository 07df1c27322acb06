// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/train/history.hpp.
#pragma once

#include <algorithm>

#include <cupola/core/error.hpp>
#include <cupola/train/history.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The names of the metrics of all records, in order of first appearance.
[[nodiscard, gnu::cold]] CUPOLA_DECL std::vector<std::string> metric_names(const std::vector<HistoryRecord>& records) {
    std::vector<std::string> names;
    for (const HistoryRecord& record : records) {
        for (const MetricValue& each : record.metrics) {
            if (std::ranges::find(names, each.name) == names.end()) names.push_back(each.name);
        }
    }
    return names;
}

/// A field of a CSV file, quoted if necessary (RFC 4180).
[[nodiscard, gnu::cold]] CUPOLA_DECL std::string csv_field(std::string_view words) {
    if (words.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(words);
    std::string field = "\"";
    for (const char c : words) field.append(c == '"' ? 2 : 1, c);
    return field + '"';
}

}  // namespace impl

CUPOLA_DECL double HistoryRecord::metric(std::string_view name) const {
    return impl::require_metric(metrics, name, "this record");
}

CUPOLA_DECL History::History() = default;
CUPOLA_DECL History::History(const History& other) = default;
CUPOLA_DECL History::History(History&& other) noexcept = default;
CUPOLA_DECL History& History::operator=(const History& other) = default;
CUPOLA_DECL History& History::operator=(History&& other) noexcept = default;
CUPOLA_DECL History::~History() = default;

[[gnu::cold]] CUPOLA_DECL std::string History::csv() const {
    const std::vector<std::string> names = impl::metric_names(records);
    std::string lines = "epoch,step,loss,validation_loss";
    for (const std::string& each : names) lines += ',' + impl::csv_field(each);
    lines += ",learning_rate,seconds\n";
    for (const HistoryRecord& record : records) {
        lines +=
            text(record.epoch ? text(*record.epoch) : std::string(), ',', record.step, ',', exact_text(record.loss),
                 ',', record.validation_loss ? exact_text(*record.validation_loss) : std::string());
        for (const std::string& each : names) {
            const MetricValue* const found = impl::find_metric(record.metrics, each);
            lines += text(',', found == nullptr ? std::string() : exact_text(found->value));
        }
        lines += text(',', exact_text(record.learning_rate), ',', exact_text(record.seconds), '\n');
    }
    return lines;
}

}}  // namespace cupola::CUPOLA_ABI
