// SPDX-License-Identifier: Apache-2.0
//
// The time of training steps, as measured by stopwatches on one device's thread: seconds and calls of each node of the
// network, forward and backward, and of each part of a step around it; and what the nodes compute. `profile` of
// train/profile.hpp makes one, attaches it to a training and prints a table of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/net/stopwatch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Notified when a part begins and ends, for a device that works asynchronously, where the host's clock measures
/// nothing useful. `entry` is for StepTimes::add, once the seconds are known.
class StepMarks {
public:
    virtual void begin(std::size_t entry) = 0;
    virtual void end(std::size_t entry) = 0;

protected:
    StepMarks() = default;
    StepMarks(const StepMarks&) = default;
    StepMarks& operator=(const StepMarks&) = default;
    ~StepMarks() = default;
};

class StepTimes final : public StepTimer {
public:
    struct Entry {
        double seconds = 0;
        std::int64_t calls = 0;
    };

    /// Room for this many steps of a network with this many nodes: nothing is allocated while steps are timed.
    StepTimes(std::size_t nodes, std::int64_t steps)
        : StepTimer(nodes),
          works_(2 * nodes + step_parts),
          entries_(works_.size() * static_cast<std::size_t>(steps)),
          seconds_(static_cast<std::size_t>(steps)) {}

    [[nodiscard]] std::size_t steps() const { return done_; }
    [[nodiscard]] std::size_t nodes() const { return nodes_; }
    [[nodiscard]] const Entry& at(std::size_t step, StepPart part) const {
        return row(step)[static_cast<std::size_t>(part)];
    }
    [[nodiscard]] const Entry& at(std::size_t step, Direction direction, std::size_t node) const {
        return row(step)[entry(direction, node)];
    }
    /// The whole step, as seen by the caller of the training.
    [[nodiscard]] double seconds(std::size_t step) const { return seconds_[step]; }
    /// The work of a call per sample.
    [[nodiscard]] const OperationWork& work(Direction direction, std::size_t node) const {
        return works_[entry(direction, node)];
    }

    /// From now on stopwatches notify `marks` instead of reading the clock; null stops this.
    void mark(StepMarks* marks) { marks_ = marks; }
    /// Adds a call to an entry of the step in progress.
    void add(std::size_t entry, double seconds) {
        Entry& of_step = entries_[done_ * works_.size() + entry];
        of_step.seconds += seconds;
        ++of_step.calls;
    }

    /// Ends the step in progress. More may be added only while there is room for another step.
    void end_step(double seconds) { seconds_[done_++] = seconds; }

    [[gnu::cold]] double begin(std::size_t entry) override {
        if (marks_ == nullptr) return monotonic_seconds();
        marks_->begin(entry);
        return 0;
    }
    [[gnu::cold]] void end(std::size_t entry, double begun) override {
        if (marks_ == nullptr) return add(entry, monotonic_seconds() - begun);
        marks_->end(entry);
    }
    [[gnu::cold]] void set_work(std::size_t entry, const OperationWork& work, std::int64_t samples) override {
        const auto count = static_cast<double>(samples);
        works_[entry] = {work.operations / count, work.cached_bytes / count};
    }

private:
    [[nodiscard]] const Entry* row(std::size_t step) const { return entries_.data() + step * works_.size(); }

    StepMarks* marks_ = nullptr;
    std::vector<OperationWork> works_;
    std::vector<Entry> entries_;
    std::vector<double> seconds_;
    std::size_t done_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
