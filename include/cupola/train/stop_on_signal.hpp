// SPDX-License-Identifier: Apache-2.0
//
// StopOnSignal: the first Ctrl-C or SIGTERM ends the run after the step that it came in, so that callbacks such as
// CheckpointEvery see its end; the second ends the process at once. One object at a time; the signals' former handlers
// come back with its end.
#pragma once

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/train/run.hpp>

namespace cupola::inline CUPOLA_ABI {

class StopOnSignal {
public:
    /// Throws InvalidArgument while there is another, DeviceError if the system refuses.
    StopOnSignal() {
        require(!std::exchange(installed(), true), "two StopOnSignal objects at once: signals have one handler");
        received() = 0;
        struct sigaction action {};
        action.sa_handler = [](int signal) {
            received() = signal;
            // The second signal, whichever of the two, finds the default action.
            std::signal(SIGINT, SIG_DFL);
            std::signal(SIGTERM, SIG_DFL);
        };
        action.sa_flags = SA_RESTART;  // a line or a checkpoint that is being written is written on
        sigemptyset(&action.sa_mask);
        const bool done = sigaction(SIGINT, &action, &interrupt_) == 0 && sigaction(SIGTERM, &action, &terminate_) == 0;
        require<DeviceError>(done, "signals cannot be handled: ", std::strerror(errno));
    }
    StopOnSignal(const StopOnSignal&) = delete;
    StopOnSignal& operator=(const StopOnSignal&) = delete;
    ~StopOnSignal() {
        sigaction(SIGINT, &interrupt_, nullptr);
        sigaction(SIGTERM, &terminate_, nullptr);
        installed() = false;
    }

    void on_step(const StepReport&, Run& run) { run.stop = run.stop || signal() != 0; }

    /// The signal that came, or 0.
    [[nodiscard]] int signal() const { return received(); }

private:
    // A handler is a plain function: what it writes has to be static.
    static std::atomic<int>& received() {
        static std::atomic<int> signal = 0;
        static_assert(std::atomic<int>::is_always_lock_free, "a handler may not lock");
        return signal;
    }
    static bool& installed() {
        static bool one = false;
        return one;
    }
    struct sigaction interrupt_ {
    }, terminate_{};
};

}  // namespace cupola::inline CUPOLA_ABI
