// SPDX-License-Identifier: Apache-2.0
//
// A write beyond the process's limit on the size of files (RLIMIT_FSIZE, `ulimit -f`) raises SIGXFSZ, which ends the
// process before the write can report its error. Writers of files block the signal while they write: the write then
// fails with EFBIG, and the writer reports that and removes the incomplete file.
//
// A library must not change what a signal does in the whole process, so only the calling thread is affected, to which the
// system sends this signal. A program may do more: std::signal(SIGXFSZ, SIG_IGN).
#pragma once

#include <cerrno>
#include <ctime>

#include <signal.h>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

/// While it lives, writes of the calling thread raise no SIGXFSZ. A signal that was blocked before stays blocked. errno
/// is kept.
class FileSizeSignalBlock {
public:
    FileSizeSignalBlock() {
        sigset_t pending;
        sigemptyset(&pending);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
        sigemptyset(&signal_);
        sigaddset(&signal_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &signal_, &before_);
    }
    FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
    FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;
    ~FileSizeSignalBlock() {
        const int error = errno;
        const std::timespec no_wait{};
        while (!was_pending_ && sigtimedwait(&signal_, nullptr, &no_wait) < 0 && errno == EINTR) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

private:
    sigset_t signal_, before_;
    bool was_pending_ = false;
};

}  // namespace cupola::inline CUPOLA_ABI
