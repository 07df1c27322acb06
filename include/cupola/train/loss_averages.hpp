// SPDX-License-Identifier: Apache-2.0
//
// LossAverages: each part of the loss and the total, averaged over the replicas, raw and smoothed over the steps. The
// smoothing is an exponential moving average with decay 0.9 and bias correction, as for Adam's moments:
//
//   weight  = 0.9 * weight + 0.1, from 0
//   average = average + 0.1 / weight * (value - average), so the first average is the first value
//
// Skipped steps are not added.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/span_of.hpp>
#include <cupola/parallel/step_report.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct LossAveragesOptions {
    /// The decay of the averages per step: at least 0 and less than 1.
    double decay = 0.9;
    /// Uses no bias correction: average = decay * average + (1 - decay) * value, from 0, as TensorFlow's CIFAR-10
    /// tutorial writes in its summaries: the first average is a tenth of the first value.
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

    /// The parts, in the order of the loss collection.
    [[nodiscard]] std::span<const Entry> parts() const { return impl::span_of(entries_); }
    [[nodiscard]] const Entry& total() const { return total_; }

    /// The averages, with which a resumed run continues; the total under its name, and the sum of the steps' weights
    /// under `weight_name` unless they begin at 0.
    [[nodiscard]] std::vector<LossPart> state() const;
    /// Restores a state; one without that sum counts as averages of many steps. Throws InvalidArgument for a sum that
    /// is negative or not finite.
    void restore(std::span<const LossPart> state);

    static constexpr std::string_view weight_name = "weight_of_steps";

private:
    [[gnu::cold]] Entry& find(const std::string& name);
    void smooth(Entry& entry) const;

    LossAveragesOptions options_;
    /// The sum of the weights of all steps so far.
    double weight_ = 0;
    std::vector<Entry> entries_;
    Entry total_{"total_loss"};
};

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/train/loss_averages.ipp>
#endif
