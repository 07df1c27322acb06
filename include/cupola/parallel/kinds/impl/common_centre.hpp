// SPDX-License-Identifier: Apache-2.0
//
// CommonCentre: what the replicas of an asynchronous training have in common where they are divided between processes,
// in memory that all of these read and write: the centre and its moving averages, the turns, for each piece of the
// centre the ticket that passes it next, and the results of the batches of the steps in flight.
//
// Each process queues the same steps and computes the batches whose numbers are those of its replicas. Its own copy of
// the centre is that between two jobs. All begin a job together, after which process 0 has written the centre; one
// ends it when the batches of all are complete.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <string_view>

#include <cupola/core/function_ref.hpp>
#include <cupola/core/process_number.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/kinds/asynchronous_processes.hpp>
#include <cupola/parallel/kinds/impl/centre_meetings.hpp>
#include <cupola/parallel/kinds/impl/shared_event.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class CommonCentre final : public CentreMeetings {
public:
    struct Sizes {
        /// Those of a gradient, and those of a copy of the parameters.
        std::int64_t elements = 0, all_elements = 0;
        bool averages = false;
        std::size_t pieces = 0;
        /// The steps in flight, and the batches of a replica in one.
        std::int64_t steps = 1;
        int parts = 1;
        /// Those of StatusLayout.
        std::size_t losses = 0, regularized = 0, buffers = 0;
    };
    /// The numbers of turns, tickets and exchanges so far.
    struct Turns {
        std::int64_t turns = 0, tickets = 0, exchanges = 0;
    };
    /// A batch that is complete: the replica that has computed it, its turn, and how stale that replica was.
    struct Completed {
        std::int64_t replica = 0, turn = 0, staleness = -1;
    };

    /// `processes` and `placement` must outlive the object.
    [[gnu::cold]] CommonCentre(AsynchronousProcesses& processes, const ReplicaPlacement& placement, const Sizes& sizes);

    /// The size of the memory, which process 0 allocates.
    [[nodiscard]] std::size_t bytes() const { return placed_bytes(); }
    [[nodiscard]] float* centre() const { return reinterpret_cast<float*>(memory() + centre_); }
    [[nodiscard]] float* averages() const { return reinterpret_cast<float*>(memory() + averages_); }

    // On the thread that uses the training. Those that wait return false if a process has failed.

    /// Begins a job, which no process does before all have called this. Process 0 then calls `fill`, which writes the
    /// centre. Throws InvalidArgument if a process begins at another step, or checks or restores a state.
    [[nodiscard]] bool begin(std::int64_t step, FunctionRef<void()> fill);
    /// For `fill`: there are no steps before `step`, of which this is the number of turns.
    void clear(std::int64_t step, std::int64_t turns);
    /// Returns when all batches of a step are complete. Throws InvalidArgument if a process has not queued it and
    /// checks or restores a state.
    [[nodiscard]] bool wait_for_step(std::int64_t step);
    /// Returns when every process has made the report of the step whose place in memory `step` takes.
    /// Throws InvalidArgument if a process checks or restores a state before `step`.
    [[nodiscard]] bool wait_for_place(std::int64_t step);
    void set_reported(std::int64_t step) { set(reported_, step); }

    // Of a step that is complete.

    [[nodiscard]] Completed completed(std::int64_t step, int number) const { return record(step, number).batch; }
    [[nodiscard]] std::int64_t samples(std::int64_t step, int number, int part) const {
        std::int64_t samples = 0;
        std::memcpy(&samples, result_at(step, number, part), sizeof samples);
        return samples;
    }
    [[nodiscard]] BatchResult result(std::int64_t step, int number, int part) const {
        const std::byte* const at = result_at(step, number, part) + sizeof(std::int64_t);
        const auto* const report = reinterpret_cast<const LossReport*>(at);
        const std::byte* const id = at + (1 + sizes_.losses) * sizeof(LossReport);
        return {.report = report,
                .of_losses = report + 1,
                .bad_id = reinterpret_cast<const IdReport*>(id),
                .statistics = reinterpret_cast<const float*>(id + sizeof(IdReport))};
    }

    // On any thread.

    /// Tells the other processes of an error, unless another one has failed in the same steps.
    [[gnu::cold]] void fail(const std::exception_ptr& error);
    /// Wakes all that wait, in each process.
    [[gnu::cold]] void wake();

    // On the threads of the devices.

    /// Calls `draw` with the turns so far, which no other thread draws from.
    void draw(FunctionRef<void(Turns&)> draw) {
        lock(head().turns_lock, draw_name);
        const std::lock_guard held(head().turns_lock, std::adopt_lock);
        draw(head().turns);
    }
    /// Calls `update`, which updates the moving averages outside of an order.
    void update_averages(FunctionRef<void()> update) {
        lock(head().averages_lock, exchange_name);
        const std::lock_guard held(head().averages_lock, std::adopt_lock);
        update();
    }
    /// Waits until the ticket of a device may pass a piece of the centre, or `is_stopped()`; false if a process has
    /// failed.
    [[nodiscard]] bool wait_for_piece(std::size_t piece, int device, std::int64_t ticket, std::int64_t step,
                                      FunctionRef<bool()> is_stopped) {
        ticket_of(static_cast<int>(process()), device).store(ticket, std::memory_order_release);
        const std::atomic<std::int64_t>& passed = word(passed_, piece).value;
        const auto may_pass = [&] {
            if (passed.load(std::memory_order_acquire) == ticket || is_stopped()) return true;
            require_queued(step);
            return false;
        };
        return wait(word(passed_, piece).event, {exchange_name, step}, may_pass,
                    [&](int p) { return may_pass_next(p, piece, step); });
    }
    void pass_piece(std::size_t piece, std::int64_t ticket) {
        word(passed_, piece).value.store(ticket + 1, std::memory_order_release);
        word(passed_, piece).event.notify();
    }
    /// The sums of squares of the regularised parameters, which batch 0 writes before it is complete.
    [[nodiscard]] double* regularization(std::int64_t step) const {
        return reinterpret_cast<double*>(memory() + regularization_ + slot_of(step) * sizes_.regularized * 8);
    }
    void write(std::int64_t step, int number, int part, std::int64_t samples, const BatchResult& result);
    /// The last of a batch.
    void complete(std::int64_t step, int number, const Completed& batch);

private:
    struct Head {
        SharedLock turns_lock, averages_lock;
        Turns turns;
    };
    struct Record {
        /// The step of which this batch is complete.
        std::atomic<std::int64_t> step;
        Completed batch;
    };
    static constexpr std::string_view exchange_name = "the exchange with the centre", draw_name = "a turn of a replica";

    [[nodiscard]] Head& head() const { return *reinterpret_cast<Head*>(memory() + head_); }
    [[nodiscard]] std::size_t slot_of(std::int64_t step) const { return static_cast<std::size_t>(step % sizes_.steps); }
    [[nodiscard]] std::byte* record_at(std::int64_t step, int number) const {
        return memory() + records_ +
               (slot_of(step) * static_cast<std::size_t>(placement_.replicas()) + static_cast<std::size_t>(number)) *
                   record_bytes_;
    }
    [[nodiscard]] Record& record(std::int64_t step, int number) const {
        return *reinterpret_cast<Record*>(record_at(step, number));
    }
    [[nodiscard]] std::byte* result_at(std::int64_t step, int number, int part) const {
        return record_at(step, number) + sizeof(Record) + static_cast<std::size_t>(part) * result_bytes_;
    }

    /// Whether all batches of a process are complete in a step.
    [[nodiscard]] bool is_complete(std::int64_t step, int process) const {
        for (int k = placement_.first_replica_of_process(process); k < placement_.first_replica_of_process(process + 1);
             ++k) {
            if (record(step, k).step.load(std::memory_order_acquire) != step) return false;
        }
        return true;
    }

    /// The last ticket with which a device came to a piece.
    [[nodiscard]] std::atomic<std::int64_t>& ticket_of(int process, int device) const {
        return word(tickets_, static_cast<std::size_t>(process * placement_.device_count() + device)).value;
    }
    /// Whether a process has the ticket that passes a piece next; if no device has come with it yet, whether the
    /// process has a device that may.
    [[nodiscard]] bool may_pass_next(int process, std::size_t piece, std::int64_t step) const;

    const ReplicaPlacement& placement_;
    Sizes sizes_;
    /// Places in the memory: words of each process, words of each piece, and the rest.
    std::size_t head_ = 0, reported_ = 0, tickets_ = 0, passed_ = 0, records_ = 0, regularization_ = 0, centre_ = 0,
                averages_ = 0;
    std::size_t record_bytes_ = 0, result_bytes_ = 0;
};

/// The other processes of a training with a common centre.
class CommonPeers final : public Peers {
public:
    explicit CommonPeers(AsynchronousProcesses& processes) : processes_(processes) {}
    /// Before the first step.
    void bind(const CommonCentre& common) { common_ = &common; }

    [[nodiscard]] bool any() const override { return true; }
    [[nodiscard]] BatchResult result_of(std::int64_t step, int replica, int part) override {
        return common_->result(step, replica, part);
    }
    void gather(const ExchangeName& name, std::byte* blocks, std::size_t bytes) override {
        processes_.gather(name, blocks, bytes);
    }

private:
    AsynchronousProcesses& processes_;
    const CommonCentre* common_ = nullptr;
};

inline CommonCentre::CommonCentre(AsynchronousProcesses& processes, const ReplicaPlacement& placement,
                                  const Sizes& sizes)
    : CentreMeetings(processes, {placement.process_count(), placement.process_number()}),
      placement_(placement),
      sizes_(sizes) {
    static_assert(sizeof(Record) % 8 == 0 && sizeof(LossReport) % 8 == 0 && sizeof(IdReport) % 8 == 0);
    const auto aligned = [](std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; };
    result_bytes_ = aligned(sizeof(std::int64_t) + (1 + sizes.losses) * sizeof(LossReport) + sizeof(IdReport) +
                                sizes.buffers * sizeof(float),
                            8);
    record_bytes_ = aligned(sizeof(Record) + static_cast<std::size_t>(sizes.parts) * result_bytes_, line);
    const auto steps = static_cast<std::size_t>(sizes.steps);
    head_ = place(sizeof(Head));
    reported_ = place(process_count() * sizeof(Word));
    tickets_ = place(process_count() * static_cast<std::size_t>(placement.device_count()) * sizeof(Word));
    passed_ = place(sizes.pieces * sizeof(Word));
    records_ = place(steps * static_cast<std::size_t>(placement.replicas()) * record_bytes_);
    regularization_ = place(steps * sizes.regularized * sizeof(double));
    centre_ = place(static_cast<std::size_t>(sizes.all_elements) * sizeof(float));
    averages_ = place(sizes.averages ? static_cast<std::size_t>(sizes.elements) * sizeof(float) : 0);
    bind();
}

inline void CommonCentre::wake() {
    progress().notify();
    for (std::size_t i = 0; i < sizes_.pieces; ++i) word(passed_, i).event.notify();
}

inline void CommonCentre::fail(const std::exception_ptr& error) {
    record_failure(error);
    wake();
}

inline bool CommonCentre::begin(std::int64_t step, FunctionRef<void()> fill) {
    const ExchangeName name{"the beginning of asynchronous steps", step};
    const Purpose purpose{Purpose::train, step};
    if (!meet_again(name, purpose)) return false;
    if (process() == 0) fill();
    return meet(name, purpose);
}

inline void CommonCentre::clear(std::int64_t step, std::int64_t turns) {
    head().turns = {.turns = turns};
    for (std::size_t i = 0; i < sizes_.pieces; ++i) word(passed_, i).value.store(0, std::memory_order_relaxed);
    for (int p = 0; p < placement_.process_count(); ++p) {
        word(reported_, static_cast<std::size_t>(p)).value.store(step - 1, std::memory_order_relaxed);
        for (int d = 0; d < placement_.device_count(); ++d) ticket_of(p, d).store(-1, std::memory_order_relaxed);
    }
    for (std::int64_t s = 0; s < sizes_.steps; ++s) {
        for (int k = 0; k < placement_.replicas(); ++k) record(s, k).step.store(-1, std::memory_order_relaxed);
    }
}

inline bool CommonCentre::may_pass_next(int process, std::size_t piece, std::int64_t step) const {
    const std::int64_t next = word(passed_, piece).value.load(std::memory_order_acquire);
    bool is_there = false, comes_later = true;
    for (int p = 0; p < placement_.process_count(); ++p) {
        for (int d = 0; d < placement_.device_count(); ++d) {
            const std::int64_t ticket = ticket_of(p, d).load(std::memory_order_acquire);
            if (ticket == next && p == process) return true;
            is_there = is_there || ticket == next;
            if (p == process) comes_later = comes_later && ticket > next;
        }
    }
    return !is_there && !comes_later && !is_complete(step, process);
}

inline bool CommonCentre::wait_for_step(std::int64_t step) {
    const auto is_late = [&](int p) { return !is_complete(step, p); };
    const auto all_complete = [&] {
        if (!any_late(is_late)) return true;
        require_queued(step);
        return false;
    };
    return wait(progress(), {"the batches of the other processes", step}, all_complete, is_late);
}

inline bool CommonCentre::wait_for_place(std::int64_t step) {
    const std::int64_t last = step - sizes_.steps;
    const auto is_late = [&](int p) { return !is_at_least(reported_, p, last); };
    const auto all_reported = [&] {
        if (!any_late(is_late)) return true;
        require_queued(step);
        return false;
    };
    return wait(progress(), {"the reports of the other processes", last}, all_reported, is_late);
}

inline void CommonCentre::write(std::int64_t step, int number, int part, std::int64_t samples,
                                const BatchResult& result) {
    std::byte* at = result_at(step, number, part);
    const auto append = [&](const void* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(at, from, bytes);
        at += bytes;
    };
    append(&samples, sizeof samples);
    append(result.report, sizeof(LossReport));
    append(result.of_losses, sizes_.losses * sizeof(LossReport));
    append(result.bad_id, sizeof(IdReport));
    append(result.statistics, sizes_.buffers * sizeof(float));
}

inline void CommonCentre::complete(std::int64_t step, int number, const Completed& batch) {
    record(step, number).batch = batch;
    record(step, number).step.store(step, std::memory_order_release);
    progress().notify();
}

}}}  // namespace cupola::CUPOLA_ABI::impl
