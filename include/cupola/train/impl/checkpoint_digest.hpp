// SPDX-License-Identifier: Apache-2.0
//
// The digest of a checkpoint, with which processes compare what each of them would write.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/train/history.hpp>
#include <cupola/train/impl/run_records.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

[[nodiscard, gnu::cold]] inline std::string crc_text(std::uint32_t sum) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%08x", sum);
    return digits;
}

/// The parts of a checkpoint, each with a checksum: its state, and the records of the run without the times, which
/// differ between processes. Parts that only the writing process has, such as smoothed losses, are not included.
[[nodiscard, gnu::cold]] inline std::vector<std::pair<std::string, std::string>> digest_of(
    const Checkpoint& checkpoint) {
    std::vector<std::pair<std::string, std::string>> parts{{"step", text(checkpoint.state.step)}};
    if (!checkpoint.state.rule.empty()) parts.emplace_back("rule of the replicas", checkpoint.state.rule);
    const auto add = [&](std::string name, std::span<const float> values) {
        parts.emplace_back(std::move(name), text(values.size(), ' ', crc_text(crc32c(std::as_bytes(values)))));
    };
    const auto add_replica = [&](const std::string& of, const auto& replica) {
        add(of + "value of the parameters", replica.parameters);
        add(of + "value of the moving averages", replica.averages);
        for (const OptimizerState& each : replica.optimizer) add(of + each.name + " of the optimiser", each.values);
    };
    add_replica("", checkpoint.state);
    int number = 0;
    for (const ReplicaState& each : checkpoint.state.replicas) add_replica(text("replica ", number++, "'s "), each);
    for (const OptimizerState& each : checkpoint.state.centre_optimizer)
        add(each.name + " of the centre's optimiser", each.values);
    add("value of the running statistics", checkpoint.state.buffers);
    if (std::optional<RecordProgress> progress = read_progress(checkpoint.info)) {
        std::string records = text(progress->has_steps ? 1 : 0, ' ', exact_text(progress->weight), ' ',
                                   exact_text(progress->sum), ' ', exact_text(progress->learning_rate));
        for (const HistoryRecord& each : progress->records) {
            records += text(' ', each.step, ' ', exact_text(each.loss), ' ', exact_text(each.learning_rate), ' ',
                            each.validation_loss ? exact_text(*each.validation_loss) : std::string());
            for (const MetricValue& metric : each.metrics) records += ' ' + exact_text(metric.value);
        }
        parts.emplace_back("list of records", crc_text(crc32c(std::as_bytes(std::span(records)))));
    }
    return parts;
}

/// "step 20, crc32c 1a2b3c4d".
[[nodiscard, gnu::cold]] inline std::string digest_text(const Checkpoint& checkpoint) {
    std::string all;
    for (const auto& [name, value] : digest_of(checkpoint)) all += value + ' ';
    return text("step ", checkpoint.state.step, ", crc32c ", crc_text(crc32c(std::as_bytes(std::span(all)))));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
