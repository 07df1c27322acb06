// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/train/loss_averages.hpp.
#pragma once

#include <cupola/train/loss_averages.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_DECL LossAverages::LossAverages(const LossAveragesOptions& options) : options_(options) {
    require(impl::is_finite(options.decay) && options.decay >= 0 && options.decay < 1,
            "the decay of the losses' averages must be at least 0 and less than 1, not ", options.decay);
}

CUPOLA_DECL LossAverages::LossAverages(const LossAverages& other) = default;
CUPOLA_DECL LossAverages::LossAverages(LossAverages&& other) noexcept = default;
CUPOLA_DECL LossAverages& LossAverages::operator=(const LossAverages& other) = default;
CUPOLA_DECL LossAverages& LossAverages::operator=(LossAverages&& other) noexcept = default;
CUPOLA_DECL LossAverages::~LossAverages() = default;

CUPOLA_DECL void LossAverages::update(const StepReport& report) {
    if (report.skipped) return;
    for (Entry& entry : entries_) entry.raw = 0;
    for (const LossPart& part : report.parts) find(part.name).raw += part.value;
    total_.raw = report.loss;
    weight_ = options_.decay * weight_ + (1 - options_.decay);
    for (Entry& entry : entries_) smooth(entry);
    smooth(total_);
}

CUPOLA_DECL void LossAverages::smooth(Entry& entry) const {
    const double decay = options_.decay;
    if (options_.from_zero) {
        entry.smoothed = decay * entry.smoothed + (1 - decay) * entry.raw;
    } else {
        entry.smoothed += (1 - decay) / weight_ * (entry.raw - entry.smoothed);
    }
}

[[gnu::cold]] CUPOLA_DECL std::vector<LossPart> LossAverages::state() const {
    std::vector<LossPart> result;
    result.reserve(entries_.size() + 2);
    for (const Entry& entry : entries_) result.push_back({entry.name, entry.smoothed});
    result.push_back({total_.name, total_.smoothed});
    if (!options_.from_zero) result.push_back({std::string(weight_name), weight_});
    return result;
}

CUPOLA_DECL void LossAverages::restore(std::span<const LossPart> state) {
    entries_.clear();
    total_.smoothed = 0;
    weight_ = state.empty() ? 0 : 1;
    for (const LossPart& part : state) {
        if (part.name == weight_name) {
            require(impl::is_finite(part.value) && part.value >= 0, "the sum of the weights of averaged losses is ",
                    part.value);
            weight_ = part.value;
        } else {
            (part.name == total_.name ? total_ : find(part.name)).smoothed = part.value;
        }
    }
}

CUPOLA_DECL LossAverages::Entry& LossAverages::find(const std::string& name) {
    for (Entry& entry : entries_) {
        if (entry.name == name) return entry;
    }
    return entries_.emplace_back(Entry{name});
}

}}  // namespace cupola::CUPOLA_ABI
