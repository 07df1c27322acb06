// SPDX-License-Identifier: Apache-2.0
//
// StopOnSignal: the first Ctrl-C (SIGINT), SIGTERM or SIGHUP ends the run after the current step, so that callbacks
// such as CheckpointEvery see its end; a second SIGINT or SIGTERM ends the process immediately. A second SIGHUP does
// not: when a terminal is closed, both its shell and the system send one. A signal that is ignored when the object is
// constructed stays ignored: SIGHUP under nohup, SIGINT of a shell's background processes. Only one object may exist at
// a time; its destructor restores the previous signal handlers.
//
// A launcher of several processes sends SIGTERM to all of them when one ends, and again when the next one does. In that
// case a second SIGTERM is ignored: the process still writes what it waited for, and ends by itself.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class StopOnSignal {
public:
    /// `several`: whether this is one of several processes. Throws InvalidArgument while another object exists, and
    /// DeviceError if the system call fails.
    explicit StopOnSignal(bool several = false) {
        require(!std::exchange(installed(), true),
                "only one StopOnSignal object can exist at a time: a signal has one handler");
        received() = 0;
        struct sigaction action {};
        action.sa_handler = [](int signal) {
            received() = signal;
            for (std::size_t i = 0; i < handled.size(); ++i) std::signal(handled[i], second()[i]);
        };
        action.sa_flags = SA_RESTART;  // an interrupted write of a line or a checkpoint continues
        sigemptyset(&action.sa_mask);
        bool done = true;
        for (std::size_t i = 0; i < handled.size(); ++i)
            done = done && sigaction(handled[i], nullptr, &before_[i]) == 0;
        for (std::size_t i = 0; i < handled.size(); ++i) {
            const bool lasts = handled[i] == SIGHUP || (handled[i] == SIGTERM && several) || is_ignored(i);
            second()[i] = lasts ? SIG_IGN : SIG_DFL;
        }
        for (std::size_t i = 0; i < handled.size(); ++i)
            done = done && (is_ignored(i) || sigaction(handled[i], &action, nullptr) == 0);
        require<DeviceError>(done, "signals cannot be handled: ", std::strerror(errno));
    }
    StopOnSignal(const StopOnSignal&) = delete;
    StopOnSignal& operator=(const StopOnSignal&) = delete;
    ~StopOnSignal() {
        for (std::size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &before_[i], nullptr);
        installed() = false;
    }

    void on_step(const StepReport&, Run& run) {
        if (signal() != 0) run.stop = run.interrupted = true;
    }

    /// The signal that was received, or 0.
    [[nodiscard]] int signal() const { return received(); }

private:
    static constexpr std::array<int, 3> handled{SIGINT, SIGTERM, SIGHUP};

    [[nodiscard]] bool is_ignored(std::size_t i) const {
        return (before_[i].sa_flags & SA_SIGINFO) == 0 && before_[i].sa_handler == SIG_IGN;
    }

    // A signal handler is a plain function, so its state is static.
    static std::atomic<int>& received() {
        static std::atomic<int> signal = 0;
        static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not lock");
        return signal;
    }
    /// The actions for signals after the first one.
    using Action = void (*)(int);
    static std::array<std::atomic<Action>, handled.size()>& second() {
        static std::array<std::atomic<Action>, handled.size()> actions{};
        static_assert(std::atomic<Action>::is_always_lock_free);
        return actions;
    }
    static bool& installed() {
        static bool one = false;
        return one;
    }
    std::array<struct sigaction, handled.size()> before_{};
};

}}  // namespace cupola::CUPOLA_ABI
