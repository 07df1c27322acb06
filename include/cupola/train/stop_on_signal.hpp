// SPDX-License-Identifier: Apache-2.0
//
// StopOnSignal: the first Ctrl-C or SIGTERM ends the run after the current step, so that callbacks such as
// CheckpointEvery see its end; the second ends the process at once. One object at a time; its destructor restores the
// former handlers of the signals.
//
// A launcher of several processes sends SIGTERM to all when one of them ends, and again when the next one does. There a second
// SIGTERM is ignored: the process still writes what it has waited for, and ends by itself.
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
    /// `several`: for one of several processes. Throws InvalidArgument while another object exists, DeviceError if the system
    /// call fails.
    explicit StopOnSignal(bool several = false) {
        require(!std::exchange(installed(), true),
                "only one StopOnSignal object can exist at a time: a signal has one handler");
        received() = 0;
        terminates() = !several;
        struct sigaction action {};
        action.sa_handler = [](int signal) {
            received() = signal;
            // Restores the default action for the second signal, of either kind.
            std::signal(SIGINT, SIG_DFL);
            std::signal(SIGTERM, terminates() ? SIG_DFL : SIG_IGN);
        };
        action.sa_flags = SA_RESTART;  // an interrupted write of a line or a checkpoint continues
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

    void on_step(const StepReport&, Run& run) {
        if (signal() != 0) run.stop = run.interrupted = true;
    }

    /// The signal that was received, or 0.
    [[nodiscard]] int signal() const { return received(); }

private:
    // A handler is a plain function, so it writes to static variables.
    static std::atomic<int>& received() {
        static std::atomic<int> signal = 0;
        static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not lock");
        return signal;
    }
    /// Whether a second SIGTERM ends the process.
    static std::atomic<bool>& terminates() {
        static std::atomic<bool> answer = true;
        static_assert(std::atomic<bool>::is_always_lock_free);
        return answer;
    }
    static bool& installed() {
        static bool one = false;
        return one;
    }
    struct sigaction interrupt_ {
    }, terminate_{};
};

}  // namespace cupola::inline CUPOLA_ABI
