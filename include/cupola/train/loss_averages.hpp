// SPDX-License-Identifier: Apache-2.0
//
// LossAverages: each part of the loss and the total, the mean over the replicas, raw and smoothed over the steps. The
// weight of a step in the average is 0.9 times that of the next one, and the weights of all steps so far add up to 1,
// as those of Adam's moments with their bias correction:
//
//   weight  = 0.9 * weight + 0.1, from 0
//   average = average + 0.1 / weight * (value - average), so the first average is the first value
//
// Every step is added that was not skipped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct LossAveragesOptions {
    /// The fraction of an average that is kept at each step: at least 0 and less than 1.
    double decay = 0.9;
    /// average = decay * average + (1 - decay) * value, from 0, as TensorFlow's CIFAR-10 tutorial writes in its
    /// summaries: the first average is a tenth of the first value.
    bool from_zero = false;
};

class LossAverages {
public:
    struct Entry {
        std::string name;
        double raw = 0, smoothed = 0;
    };

    /// Throws InvalidArgument for a decay that is out of range.
    explicit LossAverages(const LossAveragesOptions& options = {});
    LossAverages(const LossAverages& other);
    LossAverages(LossAverages&& other) noexcept;
    LossAverages& operator=(const LossAverages& other);
    LossAverages& operator=(LossAverages&& other) noexcept;
    ~LossAverages();

    [[gnu::cold]] void update(const StepReport& report);

    /// The parts, in the order of the collection.
    [[nodiscard]] std::span<const Entry> parts() const { return {entries_.data(), entries_.size()}; }
    [[nodiscard]] const Entry& total() const { return total_; }

    /// The averages, to continue with after a resume; the total under its name, and the sum of the steps' weights under
    /// `weight_name` unless they begin at 0.
    [[nodiscard]] std::vector<LossPart> state() const;
    /// A state without that sum has the averages of many steps. Throws InvalidArgument for a sum that is negative or
    /// not finite.
    void restore(std::span<const LossPart> state);

    static constexpr std::string_view weight_name = "weight_of_steps";

private:
    [[gnu::cold]] Entry& find(const std::string& name);
    void smooth(Entry& entry) const;

    LossAveragesOptions options_;
    /// Of all steps so far.
    double weight_ = 0;
    std::vector<Entry> entries_;
    Entry total_{"total_loss"};
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE LossAverages::LossAverages(const LossAveragesOptions& options) : options_(options) {
    require(impl::is_finite(options.decay) && options.decay >= 0 && options.decay < 1,
            "the decay of the losses' averages must be at least 0 and less than 1, not ", options.decay);
}

CUPOLA_INLINE LossAverages::LossAverages(const LossAverages& other) = default;
CUPOLA_INLINE LossAverages::LossAverages(LossAverages&& other) noexcept = default;
CUPOLA_INLINE LossAverages& LossAverages::operator=(const LossAverages& other) = default;
CUPOLA_INLINE LossAverages& LossAverages::operator=(LossAverages&& other) noexcept = default;
CUPOLA_INLINE LossAverages::~LossAverages() = default;

CUPOLA_INLINE void LossAverages::update(const StepReport& report) {
    if (report.skipped) return;
    for (Entry& entry : entries_) entry.raw = 0;
    for (const LossPart& part : report.parts) find(part.name).raw += part.value;
    total_.raw = report.loss;
    weight_ = options_.decay * weight_ + (1 - options_.decay);
    for (Entry& entry : entries_) smooth(entry);
    smooth(total_);
}

CUPOLA_INLINE void LossAverages::smooth(Entry& entry) const {
    const double decay = options_.decay;
    if (options_.from_zero) {
        entry.smoothed = decay * entry.smoothed + (1 - decay) * entry.raw;
    } else {
        entry.smoothed += (1 - decay) / weight_ * (entry.raw - entry.smoothed);
    }
}

CUPOLA_INLINE std::vector<LossPart> LossAverages::state() const {
    std::vector<LossPart> result;
    result.reserve(entries_.size() + 2);
    for (const Entry& entry : entries_) result.push_back({entry.name, entry.smoothed});
    result.push_back({total_.name, total_.smoothed});
    if (!options_.from_zero) result.push_back({std::string(weight_name), weight_});
    return result;
}

CUPOLA_INLINE void LossAverages::restore(std::span<const LossPart> state) {
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

CUPOLA_INLINE LossAverages::Entry& LossAverages::find(const std::string& name) {
    for (Entry& entry : entries_) {
        if (entry.name == name) return entry;
    }
    return entries_.emplace_back(Entry{name});
}

#endif

}}  // namespace cupola::CUPOLA_ABI
