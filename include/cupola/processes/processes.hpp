// SPDX-License-Identifier: Apache-2.0
//
// The interface of a communication engine that connects the processes of one training. The training has R replicas in
// total, independent of the number P of processes: process p has the replicas [p R / P, (p + 1) R / P). With an engine
// that only moves bytes, as `exchange` does, P processes produce the bits of one process with R replicas.
//
// <cupola/mpi.hpp> has an engine that uses MPI.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/processes/watch/poll_pause.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Bytes to be sent to a process, or received from it.
struct ProcessMessage {
    int process = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
};

/// The processes of one training, as seen by one of them. They exchange the values that they compare.
class ProcessGroup {
public:
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;
    virtual ~ProcessGroup() = default;

    [[nodiscard]] int count() const { return count_; }
    /// The number of this process, from 0.
    [[nodiscard]] int number() const { return number_; }
    /// The processes that were killed before this training was made, by their numbers at the start of the job, in the
    /// order in which they were lost.
    [[nodiscard]] std::span<const int> lost() const { return lost_; }
    /// The number that a process had at the start of the job. It does not change when processes are lost, so messages
    /// and file names use it.
    [[nodiscard]] int number_at_start(int process) const {
        return numbers_at_start_[static_cast<std::size_t>(process)];
    }
    /// Whether processes were lost: the number of replicas then need not be a multiple of the number of processes.
    [[nodiscard]] bool are_survivors() const { return !lost_.empty(); }

    /// All-gather: each process receives a block of `bytes` bytes from every process. `blocks` has room for all blocks,
    /// in the order of the processes, and contains this process's own block at the call. Called by one thread at a
    /// time, in the same order on all processes. Throws DeviceError if the engine fails.
    virtual void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) = 0;

    // The following members are for a collective, whose calls, including those of the steps, are made in the same order
    // on all processes.

    /// Whether gather() is a call of a collective. A process whose step fails then cannot inform the others by a
    /// gather, because they are in that step. What a process requests after a step is sent with the following steps
    /// instead.
    [[nodiscard]] virtual bool is_collective() const { return false; }
    /// The flags that this process sends with each step that is queued from now on; 0 at first.
    virtual void set_step_flags(int) {}
    /// The bitwise OR of the flags that all processes sent with the step whose report was read last; the same on each
    /// process.
    [[nodiscard]] virtual int step_flags_of_all() const { return 0; }
    /// With true, until it is called with false, all processes read reports after they have queued the same steps. With
    /// false, each process reads them at any time.
    virtual void read_together(bool) {}
    /// Makes the comparisons that are due when the next steps are queued. All processes have read all reports.
    virtual void compare_remaining() {}

protected:
    /// Throws InvalidArgument unless 0 <= number < count.
    ProcessGroup(int count, int number, std::vector<int> lost = {})
        : count_(count), number_(number), lost_(std::move(lost)) {
        require(count >= 1 && number >= 0 && number < count, "process ", number, " is none of ", count);
        // The survivors keep their order.
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

/// While it exists, all processes read reports after they have queued the same steps; `of` may be null.
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

/// An engine that also moves gradients. Its members are called by one thread at a time, in the same order and for the
/// same steps on each process. begin_sum() is called on the threads of the devices: its order relative to other members
/// may differ between processes, but not the order of the begin_sum() calls. The members throw DeviceError if the
/// engine fails, and ProcessLost if the survivors can continue without the replicas of the lost processes. If another
/// process does not respond before the deadline, an engine ends the process or throws.
class Processes : public ProcessGroup {
public:
    /// Sends and receives the messages, and returns when all of them are complete. There is at most one message to and
    /// one from each other process, of the size that the other process expects, and none to the own process.
    virtual void exchange(const ExchangeName& name, std::span<const ProcessMessage> outgoing,
                          std::span<const ProcessMessage> incoming) = 0;
    /// All-reduce: adds the values of all processes, in an order that the engine chooses, and gives each process the
    /// same sums.
    virtual void sum(const ExchangeName& name, std::span<float> values) = 0;
    /// Begins such a sum, and returns without waiting for other processes, so that the caller can compute meanwhile.
    /// The engine owns the values until finish_sums(), which also throws the errors. An engine may do all the work in
    /// finish_sums(), as this default does.
    virtual void begin_sum(const ExchangeName& name, std::span<float> values) { begun_.push_back({name, values}); }
    /// Returns when all sums are complete that begin_sum() has begun.
    virtual void finish_sums() {
        for (const BegunSum& each : begun_) sum(each.name, each.values);
        begun_.clear();
    }
    /// Allocates at least `bytes` bytes of zero-filled memory per process, aligned to a cache line, which all processes
    /// read and write. Returns the address of each process's part, in the order of the processes; empty if the
    /// processes cannot share memory. Called at most once; the memory lives as long as the object.
    virtual std::vector<std::byte*> share(std::size_t bytes) = 0;
    /// The number of processes, this one among them, that can share memory with this one: those of its machine.
    [[nodiscard]] virtual int sharing() const { return count(); }
    /// Returns when `is_done()` returns true, which depends on what other processes write to the memory of share(), and
    /// which may itself sleep for some milliseconds before it returns false.
    /// Called by any threads, several at a time, also while another one is in another member. As with the other
    /// members, an engine ends the process, or throws, if another process is lost, or after the deadline; this default
    /// has none. `waits_for(process)`: whether this is a process whose writes are waited for, for the error; it may
    /// refer to nothing, where that is not known.
    virtual void wait(const ExchangeName& /*name*/, FunctionRef<bool()> is_done, FunctionRef<bool(int)> /*waits_for*/) {
        for (impl::PollPause pause; !is_done();) pause();
    }

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
