// SPDX-License-Identifier: Apache-2.0
//
// CommonCentre: what the replicas of an asynchronous training have in common where they are divided between processes,
// in memory that all of these read and write: the centre and its moving averages, the turns, for each piece of the
// centre the ticket that passes it next, the results of the batches of the steps in flight, and the first error.
//
// Each process queues the same steps and computes the batches whose numbers are those of its replicas. Its own copy of
// the centre is that between two jobs. All begin a job together, behind which process 0 has written the centre; one
// ends it when the batches of all are complete.
//
// A process that fails tells the others by a counter of failures, and goes on as they do when they find it: each gives
// up its steps and returns to the state of the last check. They meet again where the next job begins, or in restart().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/ops/id_check.hpp>
#include <cupola/ops/loss_report.hpp>
#include <cupola/parallel/kinds/asynchronous_processes.hpp>
#include <cupola/parallel/process_number.hpp>
#include <cupola/parallel/replicas/peers.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/status.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class CommonCentre {
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

    [[nodiscard]] float* centre() const { return reinterpret_cast<float*>(memory_ + centre_); }
    [[nodiscard]] float* averages() const { return reinterpret_cast<float*>(memory_ + averages_); }

    // On the thread that uses the training. Those that wait return false if a process has failed.

    /// Where no process has steps in flight: forgets all failures. Returns when all processes have called it.
    void restart(const ExchangeName& name);
    /// Begins a job, which no process does before all have called this. Process 0 then calls `fill`, which writes the
    /// centre.
    [[nodiscard]] bool begin(std::int64_t step, FunctionRef<void()> fill);
    /// For `fill`: there are no steps before `step`, of which this is the number of turns.
    void clear(std::int64_t step, std::int64_t turns);
    /// Returns when all processes have called it.
    [[nodiscard]] bool meet(const ExchangeName& name);
    /// Returns when all batches of a step are complete.
    [[nodiscard]] bool wait_for_step(std::int64_t step);
    /// Returns when every process has made the report of the step whose place in memory `step` takes.
    [[nodiscard]] bool wait_for_place(std::int64_t step);
    void set_reported(std::int64_t step) { word(reported_, process()).store(step, std::memory_order_release); }

    /// Whether a process has failed since give_up().
    [[nodiscard]] bool has_failed() const {
        return head().failures.load(std::memory_order_acquire) != given_up_.load(std::memory_order_relaxed);
    }
    /// The number of failures for which steps were given up.
    [[nodiscard]] std::int64_t given_up() const { return given_up_.load(std::memory_order_relaxed); }
    /// The steps in flight are given up.
    void give_up() { given_up_.store(head().failures.load(std::memory_order_acquire), std::memory_order_relaxed); }
    /// The error of the process that has failed.
    [[nodiscard, gnu::cold]] std::exception_ptr error() const {
        return processes_.read_error(head().error, static_cast<int>(head().failed));
    }

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

    /// Tells the other processes of an error, the first of which is everyone's.
    [[gnu::cold]] void fail(const std::exception_ptr& error);
    /// Waits until `is_done()`; false if a process has failed.
    [[nodiscard]] bool wait(const ExchangeName& name, FunctionRef<bool()> is_done);

    // On the threads of the devices.

    /// Calls `draw` with the turns so far, which no other thread draws from.
    void draw(FunctionRef<void(Turns&)> draw) {
        lock(head().turns_lock, draw_name);
        draw(head().turns);
        head().turns_lock.store(0, std::memory_order_release);
    }
    /// Calls `update`, which updates the moving averages outside of an order.
    void update_averages(FunctionRef<void()> update) {
        lock(head().averages_lock, exchange_name);
        update();
        head().averages_lock.store(0, std::memory_order_release);
    }
    /// Waits until a ticket may pass a piece of the centre, or `is_stopped()`; false if a process has failed.
    [[nodiscard]] bool wait_for_piece(std::size_t piece, std::int64_t ticket, std::int64_t step,
                                      FunctionRef<bool()> is_stopped) {
        return wait({exchange_name, step},
                    [&] { return word(passed_, piece).load(std::memory_order_acquire) == ticket || is_stopped(); });
    }
    void pass_piece(std::size_t piece, std::int64_t ticket) {
        word(passed_, piece).store(ticket + 1, std::memory_order_release);
    }
    /// The sums of squares of the regularised parameters, which batch 0 writes before it is complete.
    [[nodiscard]] double* regularization(std::int64_t step) const {
        return reinterpret_cast<double*>(memory_ + regularization_ + slot_of(step) * sizes_.regularized * 8);
    }
    void write(std::int64_t step, int number, int part, std::int64_t samples, const BatchResult& result);
    /// The last of a batch.
    void complete(std::int64_t step, int number, const Completed& batch);

private:
    static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a lock would be of one process alone");
    struct Head {
        /// The failures so far, how many of them are forgotten, and how often all have restarted.
        std::atomic<std::int64_t> failures, forgotten, restarts;
        std::atomic<std::int32_t> is_failing, turns_lock, averages_lock;
        std::int32_t failed;
        Turns turns;
        std::byte error[AsynchronousProcesses::error_bytes];
    };
    static constexpr std::size_t line = 64;
    /// On a cache line of its own, where the memory begins with one.
    struct Word {
        std::atomic<std::int64_t> value;
        std::byte rest[line - sizeof(std::int64_t)];
    };
    struct Record {
        /// The step of which this batch is complete.
        std::atomic<std::int64_t> step;
        Completed batch;
    };
    static constexpr std::string_view exchange_name = "the exchange with the centre", draw_name = "a turn of a replica";

    [[nodiscard]] Head& head() const { return *reinterpret_cast<Head*>(memory_); }
    [[nodiscard]] std::atomic<std::int64_t>& word(std::size_t list, std::size_t i) const {
        return (reinterpret_cast<Word*>(memory_ + list) + i)->value;
    }
    [[nodiscard]] std::size_t process() const { return static_cast<std::size_t>(placement_.process_number()); }
    [[nodiscard]] std::size_t process_count() const { return static_cast<std::size_t>(placement_.process_count()); }
    [[nodiscard]] std::size_t slot_of(std::int64_t step) const { return static_cast<std::size_t>(step % sizes_.steps); }
    [[nodiscard]] std::byte* record_at(std::int64_t step, int number) const {
        return memory_ + records_ +
               (slot_of(step) * static_cast<std::size_t>(placement_.replicas()) + static_cast<std::size_t>(number)) *
                   record_bytes_;
    }
    [[nodiscard]] Record& record(std::int64_t step, int number) const {
        return *reinterpret_cast<Record*>(record_at(step, number));
    }
    [[nodiscard]] std::byte* result_at(std::int64_t step, int number, int part) const {
        return record_at(step, number) + sizeof(Record) + static_cast<std::size_t>(part) * result_bytes_;
    }
    /// Whether all processes' words of a list are at least `value`.
    [[nodiscard]] bool all_at_least(std::size_t list, std::int64_t value) const {
        for (std::size_t p = 0; p < process_count(); ++p) {
            if (word(list, p).load(std::memory_order_acquire) < value) return false;
        }
        return true;
    }
    void lock(std::atomic<std::int32_t>& held, std::string_view name) {
        processes_.wait({name}, [&] {
            std::int32_t free = 0;
            return held.compare_exchange_weak(free, 1, std::memory_order_acquire);
        });
    }
    AsynchronousProcesses& processes_;
    const ReplicaPlacement& placement_;
    Sizes sizes_;
    /// Places in the memory: words of each process, words of each piece, and the rest.
    std::size_t met_ = 0, restarted_ = 0, reported_ = 0, passed_ = 0, records_ = 0, regularization_ = 0, centre_ = 0,
                averages_ = 0;
    std::size_t record_bytes_ = 0, result_bytes_ = 0;
    std::byte* memory_ = nullptr;
    /// How often this process has met the others since it has restarted, and how often it has.
    std::int64_t meetings_ = 0, restarts_ = 0;
    std::atomic<std::int64_t> given_up_ = 0;
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
    : processes_(processes), placement_(placement), sizes_(sizes) {
    static_assert(sizeof(Record) % 8 == 0 && sizeof(LossReport) % 8 == 0 && sizeof(IdReport) % 8 == 0);
    const auto aligned = [](std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; };
    result_bytes_ = aligned(sizeof(std::int64_t) + (1 + sizes.losses) * sizeof(LossReport) + sizeof(IdReport) +
                                sizes.buffers * sizeof(float),
                            8);
    record_bytes_ = aligned(sizeof(Record) + static_cast<std::size_t>(sizes.parts) * result_bytes_, line);
    std::size_t bytes = 0;
    const auto place = [&](std::size_t size) {
        const std::size_t at = bytes;
        bytes += aligned(size, line);
        return at;
    };
    const auto steps = static_cast<std::size_t>(sizes.steps);
    place(sizeof(Head));
    met_ = place(process_count() * sizeof(Word));
    restarted_ = place(process_count() * sizeof(Word));
    reported_ = place(process_count() * sizeof(Word));
    passed_ = place(sizes.pieces * sizeof(Word));
    records_ = place(steps * static_cast<std::size_t>(placement.replicas()) * record_bytes_);
    regularization_ = place(steps * sizes.regularized * sizeof(double));
    centre_ = place(static_cast<std::size_t>(sizes.all_elements) * sizeof(float));
    averages_ = place(sizes.averages ? static_cast<std::size_t>(sizes.elements) * sizeof(float) : 0);
    memory_ = processes.share(bytes);
}

inline bool CommonCentre::wait(const ExchangeName& name, FunctionRef<bool()> is_done) {
    bool failed = false;
    processes_.wait(name, [&] {
        if (is_done()) return true;
        failed = has_failed();
        return failed;
    });
    return !failed;
}

inline void CommonCentre::fail(const std::exception_ptr& error) {
    std::int32_t first = 0;
    if (!head().is_failing.compare_exchange_strong(first, 1)) {
        // Its process may not have counted it yet: this one would give up its steps without it, and again later.
        return processes_.wait({"the error of another process"}, [&] {
            return head().failures.load(std::memory_order_acquire) != head().forgotten.load(std::memory_order_relaxed);
        });
    }
    head().failed = static_cast<std::int32_t>(process());
    processes_.write_error(error, head().error);
    head().failures.fetch_add(1, std::memory_order_release);
}

inline bool CommonCentre::meet(const ExchangeName& name) {
    word(met_, process()).store(++meetings_, std::memory_order_release);
    return wait(name, [&] { return all_at_least(met_, meetings_); });
}

inline void CommonCentre::restart(const ExchangeName& name) {
    word(restarted_, process()).store(++restarts_, std::memory_order_release);
    if (process() == 0) {
        processes_.wait(name, [&] { return all_at_least(restarted_, restarts_); });
        for (std::size_t p = 0; p < process_count(); ++p) word(met_, p).store(0, std::memory_order_relaxed);
        head().is_failing.store(0, std::memory_order_relaxed);
        head().turns_lock.store(0, std::memory_order_relaxed);
        head().averages_lock.store(0, std::memory_order_relaxed);
        head().forgotten.store(head().failures.load(std::memory_order_relaxed), std::memory_order_relaxed);
        head().restarts.store(restarts_, std::memory_order_release);
    } else {
        processes_.wait(name, [&] { return head().restarts.load(std::memory_order_acquire) >= restarts_; });
    }
    meetings_ = 0;
    // Not those of a process that has gone on meanwhile and failed.
    given_up_.store(head().forgotten.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

inline bool CommonCentre::begin(std::int64_t step, FunctionRef<void()> fill) {
    const ExchangeName name{"the beginning of asynchronous steps", step};
    if (has_failed()) return false;
    if (head().forgotten.load(std::memory_order_relaxed) != given_up()) restart(name);
    if (!meet(name)) return false;
    if (process() == 0) fill();
    return meet(name);
}

inline void CommonCentre::clear(std::int64_t step, std::int64_t turns) {
    head().turns = {.turns = turns};
    for (std::size_t i = 0; i < sizes_.pieces; ++i) word(passed_, i).store(0, std::memory_order_relaxed);
    for (std::size_t p = 0; p < process_count(); ++p) word(reported_, p).store(step - 1, std::memory_order_relaxed);
    for (std::int64_t s = 0; s < sizes_.steps; ++s) {
        for (int k = 0; k < placement_.replicas(); ++k) record(s, k).step.store(-1, std::memory_order_relaxed);
    }
}

inline bool CommonCentre::wait_for_step(std::int64_t step) {
    return wait({"the batches of the other processes", step}, [&] {
        for (int k = 0; k < placement_.replicas(); ++k) {
            if (record(step, k).step.load(std::memory_order_acquire) != step) return false;
        }
        return true;
    });
}

inline bool CommonCentre::wait_for_place(std::int64_t step) {
    return wait({"the reports of the other processes", step - sizes_.steps},
                [&] { return all_at_least(reported_, step - sizes_.steps); });
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
}

}}}  // namespace cupola::CUPOLA_ABI::impl
