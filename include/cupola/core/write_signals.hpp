// SPDX-License-Identifier: Apache-2.0
//
// Two errors of a write raise a signal that ends the process before the write can report its error: SIGXFSZ for a write
// beyond the process's limit on the size of files (RLIMIT_FSIZE, `ulimit -f`), and SIGPIPE for a write to a pipe that
// has no reader any more (the standard output of `program | head`). Writers block both while they write: the write then
// fails with EFBIG or EPIPE, and the writer reports that, like a full disk.
//
// A library must not change what a signal does in the whole process, so only the calling thread is affected, to which
// the system sends these signals. A program may do more: std::signal(SIGXFSZ, SIG_IGN).
#pragma once

#include <cerrno>
#include <ctime>

#include <signal.h>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// While it lives, writes of the calling thread raise neither SIGXFSZ nor SIGPIPE. A signal that was blocked before
/// stays blocked. errno is kept.
class WriteSignalsBlock {
public:
    WriteSignalsBlock() {
        sigset_t pending;
        sigemptyset(&pending);
        sigpending(&pending);
        sigset_t blocked;
        sigemptyset(&blocked);
        sigemptyset(&raised_);
        constexpr int of_writes[] = {SIGXFSZ, SIGPIPE};
        for (const int signal : of_writes) {
            sigaddset(&blocked, signal);
            if (sigismember(&pending, signal) != 1) sigaddset(&raised_, signal);
        }
        pthread_sigmask(SIG_BLOCK, &blocked, &before_);
    }
    WriteSignalsBlock(const WriteSignalsBlock&) = delete;
    WriteSignalsBlock& operator=(const WriteSignalsBlock&) = delete;
    ~WriteSignalsBlock() {
        const int error = errno;
        const std::timespec no_wait{};
        // Consumes the signals that the writes have raised; of each at most one is pending.
        for (int taken = 0; taken >= 0 || errno == EINTR;) taken = sigtimedwait(&raised_, nullptr, &no_wait);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

private:
    /// The signals that were not pending before.
    sigset_t raised_;
    sigset_t before_;
};

}}  // namespace cupola::CUPOLA_ABI
