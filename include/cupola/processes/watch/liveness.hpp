// SPDX-License-Identifier: Apache-2.0
//
// Liveness: what a process can prove about the end of another one of the same machine. A library of communication
// reports that it does not reach a process, which may be stopped, or behind a cut connection, and still go on with the
// training. The system knows whether the process exists; and a process that ends by itself, because of an error or at a
// deadline, says so before, in memory that all of the machine read. What is left is a process that was killed, alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <type_traits>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/processes/watch/process_id.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The process of one process. Memory of zeros is that of no process.
struct ProcessLiveness {
    /// As in ProcessId.
    std::atomic<std::int64_t> id, pid_namespace;
    /// Not 0 once the process is about to end by itself.
    std::atomic<std::int32_t> exits;
};
static_assert(std::is_trivially_destructible_v<ProcessLiveness> && std::atomic<std::int64_t>::is_always_lock_free);

class Liveness {
public:
    Liveness() = default;
    /// `memory` has of bytes_of(count) bytes, all 0 at first, that the processes of a machine have in common.
    Liveness(std::byte* memory, int count) : processes_(reinterpret_cast<ProcessLiveness*>(memory)), count_(count) {}
    [[nodiscard]] static std::size_t bytes_of(int count) {
        return static_cast<std::size_t>(count) * sizeof(ProcessLiveness);
    }

    /// Called by process `number` itself.
    [[gnu::cold]] void begin(int number) {
        ProcessLiveness& mine = of(number);
        const ProcessId own = ProcessId::own();
        mine.pid_namespace = own.pid_namespace;
        mine.exits = 0;
        mine.id = own.number;
    }
    /// What a process writes 1 to before it ends by itself.
    [[nodiscard]] std::atomic<std::int32_t>* exit_flag(int number) const { return &of(number).exits; }

    /// Whether a process has said that it ends by itself.
    [[nodiscard]] bool has_exited(int number) const { return of(number).exits != 0; }
    /// Whether a process is known not to exist any more, and has not ended by itself. Waits up to a second for a
    /// process that is being ended. False for a process of another machine.
    [[nodiscard, gnu::cold]] bool was_killed(int number) const {
        const ProcessLiveness& process = of(number);
        if (process.id == 0 || !ProcessId::own().shares_pid_namespace_with({process.id, process.pid_namespace}))
            return false;
        const double until = monotonic_seconds() + 1;
        while (process_exists(process.id)) {
            if (process.exits != 0 || monotonic_seconds() > until) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return process.exits == 0;
    }

private:
    [[nodiscard]] ProcessLiveness& of(int number) const {
        require(number >= 0 && number < count_, "process ", number, " is none of ", count_);
        return processes_[number];
    }

    ProcessLiveness* processes_ = nullptr;
    int count_ = 0;
};

/// Whether those that are left of `before` processes are the ones that may go on: more than half of them, or half with
/// the first. No two sides of a cut are.
[[nodiscard]] constexpr bool may_go_on(int left, int before, bool has_first) {
    return 2 * left > before || (2 * left == before && has_first);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
