// SPDX-License-Identifier: Apache-2.0
//
// Liveness: determines whether another process of the same machine was killed. A communication library only reports
// that a process is unreachable: it may be stopped, or behind a broken connection, and still continue the training. The
// operating system knows whether the process exists, and a process that exits by itself, because of an error or at a
// deadline, first sets a flag in memory shared by the machine. A process that no longer exists and has not set its flag
// was killed.
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

/// The shared state of one process. All zeros means that there is no process.
struct ProcessLiveness {
    /// The members of ProcessId.
    std::atomic<std::int64_t> id, pid_namespace;
    /// Nonzero once the process is about to exit by itself.
    std::atomic<std::int32_t> exits;
};
static_assert(std::is_trivially_destructible_v<ProcessLiveness> && std::atomic<std::int64_t>::is_always_lock_free);

class Liveness {
public:
    Liveness() = default;
    /// `memory` has bytes_of(count) bytes, initially 0, and is shared by the processes of a machine.
    Liveness(std::byte* memory, int count) : processes_(reinterpret_cast<ProcessLiveness*>(memory)), count_(count) {}
    [[nodiscard]] static std::size_t bytes_of(int count) {
        return static_cast<std::size_t>(count) * sizeof(ProcessLiveness);
    }

    /// Registers process `number`; called by that process.
    [[gnu::cold]] void begin(int number) {
        ProcessLiveness& mine = of(number);
        const ProcessId own = ProcessId::own();
        mine.pid_namespace = own.pid_namespace;
        mine.exits = 0;
        mine.id = own.number;
    }
    /// The flag that a process sets to 1 before it exits by itself.
    [[nodiscard]] std::atomic<std::int32_t>* exit_flag(int number) const { return &of(number).exits; }

    /// Whether a process has set its exit flag.
    [[nodiscard]] bool has_exited(int number) const { return of(number).exits != 0; }
    /// Whether a process is known to no longer exist without having exited by itself. Waits up to one second for a
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

/// Whether `left` survivors of `before` processes may continue: they must be more than half, or half including the
/// first. At most one side of a network partition fulfils this.
[[nodiscard]] constexpr bool may_go_on(int left, int before, bool has_first) {
    return 2 * left > before || (2 * left == before && has_first);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
