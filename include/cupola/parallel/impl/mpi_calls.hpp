// SPDX-License-Identifier: Apache-2.0
//
// <mpi.h>, its C functions alone, and what all calls of MPI share: the check of their results, the mutex that makes them calls in
// turn, and the pause between two looks at requests.
#pragma once

#include <ctime>
#include <mutex>

#include <sched.h>

// MPI's former C++ interface is in a library of its own, which newer versions do not have.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cupola/core/error.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Throws DeviceError if a call of MPI has failed.
inline void check_mpi(int status, const char* call) {
    if (status == MPI_SUCCESS) [[likely]]
        return;
    char message[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(status, message, &length);
    throw DeviceError(text("MPI's ", call, " failed: ", message));
}

[[nodiscard]] inline int mpi_flag(int (*question)(int*)) {
    int answer = 0;
    question(&answer);
    return answer;
}

/// MPI_THREAD_SERIALIZED: the threads of a process call MPI in turn. Held for one call that does not block.
[[nodiscard]] inline std::mutex& mpi_mutex() {
    static std::mutex mutex;
    return mutex;
}
/// The result of a call that another thread may not disturb.
template <class Call>
[[nodiscard]] int in_turn(Call&& call) {
    const std::scoped_lock lock(mpi_mutex());
    return call();
}

/// Between two looks at what has arrived: at first none, then the processor is given to another thread, and after a
/// millisecond it sleeps, so that processes that share a processor do not slow each other.
class MpiPause {
public:
    void operator()() {
        ++looks_;
        if (looks_ < 100) return;
        if (looks_ < 1000) {
            sched_yield();
            return;
        }
        const timespec time{.tv_sec = 0, .tv_nsec = 50'000};
        nanosleep(&time, nullptr);
    }

private:
    int looks_ = 0;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
