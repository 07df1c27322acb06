// SPDX-License-Identifier: Apache-2.0
//
// The contract of an engine that joins several processes to one training. The training has R replicas in all, whatever
// the number P of its processes: process p has the replicas [p R / P, (p + 1) R / P). With an engine that only moves
// bytes, as `exchange` does, P processes have the bits of one process with R replicas.
//
// <cupola/mpi.hpp> has such an engine by MPI.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/parallel/process_number.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Bytes for a process, or from it.
struct ProcessMessage {
    int process = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
};

/// The processes of one training, seen from one of them: each tells the others what they compare.
class ProcessGroup {
public:
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;
    virtual ~ProcessGroup() = default;

    [[nodiscard]] int count() const { return count_; }
    /// The number of this process, from 0.
    [[nodiscard]] int number() const { return number_; }
    /// The processes that were killed before this training was made, in that order, by their numbers at the job's
    /// start.
    [[nodiscard]] std::span<const int> lost() const { return lost_; }
    /// The number that a process had at the job's start, for messages and names of files: it does not change with a
    /// loss.
    [[nodiscard]] int number_at_start(int process) const {
        return numbers_at_start_[static_cast<std::size_t>(process)];
    }
    /// Whether these are left of more processes: their number need not divide that of the replicas.
    [[nodiscard]] bool are_survivors() const { return !lost_.empty(); }

    /// Each process receives a block of `bytes` bytes of every process: `blocks` has room for all of them, in the
    /// processes' order, and contains that of this process before. Called by one thread at a time, on all processes in
    /// the same order. Throws DeviceError where the engine fails.
    virtual void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) = 0;

    // Of a collective, all calls of which, those of the steps too, come in the same order on all processes.

    /// Whether gather() is such a call. A process whose step fails then cannot tell the others by a gather: they are in
    /// that step. What it wants after a step travels with the next ones instead.
    [[nodiscard]] virtual bool is_collective() const { return false; }
    /// From now on each step that is queued carries these bits; 0 at first.
    virtual void set_step_flags(int) {}
    /// The bits that any process has set in the step whose report was read last; the same on each.
    [[nodiscard]] virtual int step_flags_of_all() const { return 0; }
    /// With true, all processes read reports after they have queued the same steps, until it is called with false: then
    /// each reads them when it wants.
    virtual void read_together(bool) {}
    /// Compares what would be compared when the next steps are queued. All processes have read all reports.
    virtual void compare_remaining() {}

protected:
    /// Throws InvalidArgument if `number` is none of `count`.
    ProcessGroup(int count, int number, std::vector<int> lost = {})
        : count_(count), number_(number), lost_(std::move(lost)) {
        require(count >= 1 && number >= 0 && number < count, "process ", number, " is none of ", count);
        // Those that are left keep their order.
        for (int p = 0; static_cast<int>(numbers_at_start_.size()) < count; ++p) {
            if (std::find(lost_.begin(), lost_.end(), p) == lost_.end()) numbers_at_start_.push_back(p);
        }
    }
    [[nodiscard]] std::span<const int> numbers_at_start() const { return numbers_at_start_; }

private:
    int count_, number_;
    std::vector<int> lost_, numbers_at_start_;
};

namespace impl {

/// During its lifetime all processes read reports after they have queued the same steps; `of` may be null.
template <class Of>
class ReadsReportsTogether {
public:
    explicit ReadsReportsTogether(Of* of) : of_(of) { set(true); }
    ReadsReportsTogether(const ReadsReportsTogether&) = delete;
    ReadsReportsTogether& operator=(const ReadsReportsTogether&) = delete;
    ~ReadsReportsTogether() { set(false); }

private:
    void set(bool on) {
        if (of_ != nullptr) of_->read_together(on);
    }
    Of* of_;
};

}  // namespace impl

/// An engine that also moves gradients. The members are called by one thread at a time, on each process in the same
/// order and with the same steps; begin_sum() is called on the threads of devices, so its place among calls of other
/// members may differ, but not that among its own. They throw DeviceError where the engine fails, and ProcessLost where
/// the processes that are left can go on, with the replicas of the others. An engine ends the process, or throws, when
/// another process has not responded at a deadline.
class Processes : public ProcessGroup {
public:
    /// Sends and receives, and returns when all of it is complete. To and from a process there are at most one message
    /// each, of the size that the other one expects; none to the own process.
    virtual void exchange(const ExchangeName& name, std::span<const ProcessMessage> outgoing,
                          std::span<const ProcessMessage> incoming) = 0;
    /// Adds the values of all processes in an order of the engine's, and gives each the same sums.
    virtual void sum(const ExchangeName& name, std::span<float> values) = 0;
    /// Begins such a sum, and returns without waiting for other processes, so that the caller computes meanwhile. The
    /// values belong to the engine until finish_sums(), which also throws the errors. An engine may leave the work to
    /// finish_sums(), as this one does.
    virtual void begin_sum(const ExchangeName& name, std::span<float> values) { begun_.push_back({name, values}); }
    /// Returns when all sums that were begun are complete.
    virtual void finish_sums() {
        for (const BegunSum& each : begun_) sum(each.name, each.values);
        begun_.clear();
    }
    /// Zero-filled memory of at least `bytes` bytes for each process, which all processes read and write, aligned to a
    /// cache line: the address of each process's part, in their order. Empty if the processes have no memory in common.
    /// It is called at most once, and lives as long as the object.
    virtual std::vector<std::byte*> share(std::size_t bytes) = 0;

    void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) override {
        outgoing_.clear(), incoming_.clear();
        const auto of = [&](int process) { return blocks + static_cast<std::size_t>(process) * bytes; };
        for (int p = 0; p < count(); ++p) {
            if (p == number()) continue;
            outgoing_.push_back({p, of(number()), bytes});
            incoming_.push_back({p, of(p), bytes});
        }
        exchange(name, outgoing_, incoming_);
    }

protected:
    using ProcessGroup::ProcessGroup;

private:
    struct BegunSum {
        ExchangeName name;
        std::span<float> values;
    };

    std::vector<BegunSum> begun_;
    std::vector<ProcessMessage> outgoing_, incoming_;
};

}}  // namespace cupola::CUPOLA_ABI
