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

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/train/loss_averages.ipp>
#endif
