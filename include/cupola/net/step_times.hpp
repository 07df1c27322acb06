// SPDX-License-Identifier: Apache-2.0
//
// The time of training steps, as measured on one device's thread: seconds and calls of each node of the network,
// forward and backward, and of each part of a step around it. `profile` of train/profile.hpp makes one, attaches it to
// a training and prints a table of it; without one, a training only tests a pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/ops/plan_node.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A part of a step outside the nodes of the network.
enum class StepPart : std::uint8_t {
    data,            ///< waiting for the batch
    packing,         ///< packing of the weights, once per step
    loss,            ///< the loss of the data, and its gradient
    regularization,  ///< the regularisers' losses
    waiting,         ///< waiting for the other devices
    averaging,       ///< averaging of the replicas' gradients, and the check that the average is finite
    optimizer,
    moving_average,
    statistics,  ///< the running statistics
};
inline constexpr std::size_t step_parts = 9;

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

class StepTimes {
public:
    struct Entry {
        double seconds = 0;
        std::int64_t calls = 0;
    };

    /// Room for this many steps of a network with this many nodes: nothing is allocated while steps are timed.
    StepTimes(std::size_t nodes, std::int64_t steps)
        : nodes_(nodes),
          entries_((2 * nodes + step_parts) * static_cast<std::size_t>(steps)),
          seconds_(static_cast<std::size_t>(steps)) {}

    [[nodiscard]] std::size_t steps() const { return done_; }
    [[nodiscard]] std::size_t nodes() const { return nodes_; }
    [[nodiscard]] const Entry& at(std::size_t step, StepPart part) const {
        return row(step)[static_cast<std::size_t>(part)];
    }
    [[nodiscard]] const Entry& at(std::size_t step, Direction direction, std::size_t node) const {
        return row(step)[place(direction, node)];
    }
    /// The whole step, as seen by the caller of the training.
    [[nodiscard]] double seconds(std::size_t step) const { return seconds_[step]; }

    /// From now on stopwatches notify `marks` instead of reading the clock; null stops this.
    void mark(StepMarks* marks) { marks_ = marks; }
    /// Adds a call to an entry of the step in progress.
    void add(std::size_t entry, double seconds) {
        Entry& of_step = entries_[done_ * (2 * nodes_ + step_parts) + entry];
        of_step.seconds += seconds;
        ++of_step.calls;
    }

    /// Ends the step in progress. More may be added only while there is room for another step.
    void end_step(double seconds) { seconds_[done_++] = seconds; }

private:
    friend class Stopwatch;

    [[nodiscard]] std::size_t place(Direction direction, std::size_t node) const {
        return step_parts + (direction == Direction::forward ? 0 : nodes_) + node;
    }
    [[nodiscard]] const Entry* row(std::size_t step) const {
        return entries_.data() + step * (2 * nodes_ + step_parts);
    }

    std::size_t nodes_;
    StepMarks* marks_ = nullptr;
    std::vector<Entry> entries_;
    std::vector<double> seconds_;
    std::size_t done_ = 0;
};

/// Adds the time of its own lifetime to an entry. Without a StepTimes it does nothing.
class Stopwatch {
public:
    Stopwatch(StepTimes* times, StepPart part) : Stopwatch(times, static_cast<std::size_t>(part)) {}
    Stopwatch(StepTimes* times, Direction direction, std::size_t node)
        : Stopwatch(times, times == nullptr ? 0 : times->place(direction, node)) {}
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() {
        if (times_ != nullptr) stop();
    }

private:
    Stopwatch(StepTimes* times, std::size_t entry) : times_(times), entry_(entry) {
        if (times_ != nullptr) start();
    }
    [[gnu::cold, gnu::noinline]] void start() {
        if (times_->marks_ != nullptr) {
            times_->marks_->begin(entry_);
        } else {
            begun_ = monotonic_seconds();
        }
    }
    [[gnu::cold, gnu::noinline]] void stop() {
        if (times_->marks_ != nullptr) {
            times_->marks_->end(entry_);
        } else {
            times_->add(entry_, monotonic_seconds() - begun_);
        }
    }

    StepTimes* times_;
    std::size_t entry_;
    double begun_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
