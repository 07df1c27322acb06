// SPDX-License-Identifier: Apache-2.0
//
// LossAverages: each part of the loss and the total, the mean over the replicas, raw and smoothed over the steps:
//
//   average = 0.9 * average + 0.1 * value, from 0, not debiased
//
// as TensorFlow's tutorial writes in its summaries. Every step is added that was not skipped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola::inline CUPOLA_ABI {

class LossAverages {
public:
    struct Entry {
        std::string name;
        double raw = 0, smoothed = 0;
    };

    explicit LossAverages(double decay = 0.9);
    LossAverages(const LossAverages& other);
    LossAverages(LossAverages&& other) noexcept;
    LossAverages& operator=(const LossAverages& other);
    LossAverages& operator=(LossAverages&& other) noexcept;
    ~LossAverages();

    [[gnu::cold]] void update(const StepReport& report);

    /// The parts, in the order of the collection.
    [[nodiscard]] std::span<const Entry> parts() const { return {entries_.data(), entries_.size()}; }
    [[nodiscard]] const Entry& total() const { return total_; }

    /// The averages, to continue with after a resume; the total under its name.
    [[nodiscard]] std::vector<LossPart> state() const;
    void restore(std::span<const LossPart> state);

private:
    [[gnu::cold]] Entry& find(const std::string& name);
    void smooth(Entry& entry) const { entry.smoothed = decay_ * entry.smoothed + (1 - decay_) * entry.raw; }

    double decay_;
    std::vector<Entry> entries_;
    Entry total_{"total_loss"};
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE LossAverages::LossAverages(double decay) : decay_(decay) {
    require(impl::is_finite(decay) && decay >= 0 && decay < 1,
            "the decay of the losses' averages must be at least 0 and less than 1, not ", decay);
}

CUPOLA_INLINE LossAverages::LossAverages(const LossAverages& other) = default;
CUPOLA_INLINE LossAverages::LossAverages(LossAverages&& other) noexcept = default;
CUPOLA_INLINE LossAverages& LossAverages::operator=(const LossAverages& other) = default;
CUPOLA_INLINE LossAverages& LossAverages::operator=(LossAverages&& other) noexcept = default;
CUPOLA_INLINE LossAverages::~LossAverages() = default;

CUPOLA_INLINE void LossAverages::update(const StepReport& report) {
    if (report.skipped) return;
    for (Entry& entry : entries_) entry.raw = 0;
    for (const ReplicaReport& replica : report.replicas) {
        if (replica.weight == 0) continue;
        const double weight = replica.weight / report.weight;
        for (const LossPart& part : replica.parts) find(part.name).raw += weight * part.value;
    }
    total_.raw = report.loss;
    for (Entry& entry : entries_) smooth(entry);
    smooth(total_);
}

CUPOLA_INLINE std::vector<LossPart> LossAverages::state() const {
    std::vector<LossPart> result;
    result.reserve(entries_.size() + 1);
    for (const Entry& entry : entries_) result.push_back({entry.name, entry.smoothed});
    result.push_back({total_.name, total_.smoothed});
    return result;
}

CUPOLA_INLINE void LossAverages::restore(std::span<const LossPart> state) {
    entries_.clear();
    total_.smoothed = 0;
    for (const LossPart& part : state) (part.name == total_.name ? total_ : find(part.name)).smoothed = part.value;
}

CUPOLA_INLINE LossAverages::Entry& LossAverages::find(const std::string& name) {
    for (Entry& entry : entries_) {
        if (entry.name == name) return entry;
    }
    return entries_.emplace_back(Entry{name});
}

#endif

}  // namespace cupola::inline CUPOLA_ABI
