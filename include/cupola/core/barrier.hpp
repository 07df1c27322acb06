// SPDX-License-Identifier: Apache-2.0
//
// Barrier: each thread waits until all have arrived. For a few threads that synchronise often: a single counter, which
// the last thread to arrive resets. std::barrier has a tree for hundreds of threads, which takes longer to compile.
#pragma once

#include <atomic>
#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class Barrier {
public:
    /// For `threads` threads, at least one.
    explicit Barrier(int threads) : threads_(threads), missing_(threads) {}
    Barrier(const Barrier&) = delete;
    Barrier& operator=(const Barrier&) = delete;

    /// Returns when all threads have arrived, and says whether `healthy` was true for each of them.
    bool arrive_and_wait(bool healthy = true);

    /// Reduces the number of threads that are waited for by `threads`. Called by a thread that has not arrived.
    void leave_out(int threads);

private:
    int threads_;
    std::atomic<int> missing_;
    std::atomic<bool> arrived_healthy_{true};
    /// Written by the last thread to arrive, read by all before they arrive again.
    bool all_healthy_ = true;
    /// The number of times that all have arrived.
    std::atomic<int> round_{0};
};

[[gnu::noinline]] inline bool Barrier::arrive_and_wait(bool healthy) {
    const int round = round_.load(std::memory_order_relaxed);
    if (!healthy) arrived_healthy_.store(false, std::memory_order_relaxed);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) > 1) {
        round_.wait(round, std::memory_order_acquire);
        return all_healthy_;
    }
    const bool all = arrived_healthy_.exchange(true, std::memory_order_relaxed);
    all_healthy_ = all;
    missing_.store(threads_, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    return all;
}

inline void Barrier::leave_out(int threads) {
    threads_ -= threads;
    missing_.fetch_sub(threads, std::memory_order_acq_rel);
}

}}  // namespace cupola::CUPOLA_ABI
