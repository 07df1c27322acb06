// SPDX-License-Identifier: Apache-2.0
//
// One worker thread per device, for the lifetime of the training. A job runs on all of them at once; inside it they
// synchronize at a barrier. A job allocates nothing.
#pragma once

#include <cstddef>
#include <exception>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

#include <cupola/core/barrier.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/thread.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class DeviceThreads {
public:
    /// Throws DeviceError if the system provides fewer threads.
    [[gnu::cold]] explicit DeviceThreads(int devices);
    DeviceThreads(const DeviceThreads&) = delete;
    DeviceThreads& operator=(const DeviceThreads&) = delete;
    [[gnu::cold]] ~DeviceThreads();

    /// Runs job(device) on every thread and waits for all. Rethrows what a job throws; of several exceptions, that of
    /// the first device.
    void run(FunctionRef<void(int device)> job) {
        post(job);
        wait();
    }
    /// The same in two parts: begins a job, which must outlive it; and waits for it, before the next.
    void post(FunctionRef<void(int device)> job);
    void wait();

    /// Whether the threads belong to this process: a child of fork() has none of them.
    [[nodiscard]] bool has_threads() const { return getpid() == process_; }

    /// A barrier, called by every thread inside a job: returns when all have arrived, and says whether `healthy` was
    /// true for each of them. If it returns false, every thread leaves the job; a thread that failed itself leaves by
    /// throwing.
    [[nodiscard]] bool arrive_and_wait(bool healthy) {
        return errors_.size() == 1 ? healthy : inside_.arrive_and_wait(healthy);
    }

private:
    [[gnu::cold]] void stop();

    void work(int device);

    /// Refers to nothing when the threads are to end.
    FunctionRef<void(int device)> job_{};
    FixedArray<std::exception_ptr> errors_;
    /// At the beginning and at the end of a job, where the caller waits too; and inside a job.
    Barrier edge_, inside_;
    pid_t process_;
    FixedArray<Thread> threads_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl

#ifdef CUPOLA_DECL
#include <cupola/parallel/replicas/device_threads.ipp>
#endif
