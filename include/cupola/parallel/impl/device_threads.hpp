// SPDX-License-Identifier: Apache-2.0
//
// One worker thread per device, for the lifetime of the training. A job runs on all of them at once; inside it they
// synchronize at a barrier. A job allocates nothing.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class DeviceThreads {
public:
    /// Throws DeviceError if the system provides fewer threads.
    explicit DeviceThreads(int devices);
    DeviceThreads(const DeviceThreads&) = delete;
    DeviceThreads& operator=(const DeviceThreads&) = delete;
    ~DeviceThreads();

    /// Runs job(device) on every thread and waits for all. Rethrows what a job throws; of several exceptions, that of the
    /// first device.
    template <class Job>
    void run(Job&& job) {
        object_ = const_cast<void*>(static_cast<const void*>(std::addressof(job)));
        call_ = [](void* object, int device) { (*static_cast<std::remove_reference_t<Job>*>(object))(device); };
        run_job();
    }

    /// Whether the threads belong to this process: a child of fork() has none of them.
    [[nodiscard]] bool has_threads() const { return getpid() == process_; }

    /// A barrier, called by every thread inside a job: returns when all have arrived, and says whether `healthy` was true
    /// for each of them. If it returns false, every thread leaves the job; a thread that failed itself leaves by throwing.
    [[nodiscard]] bool arrive_and_wait(bool healthy) {
        if (errors_.size() == 1) return healthy;
        if (!healthy) arrived_healthy_.store(false, std::memory_order_relaxed);
        inside_.arrive_and_wait();
        return all_healthy_;
    }

private:
    void run_job();

    void stop();

    void work(int device);

    /// Runs on one thread after all have arrived and before any continues; does nothing at the edges of a job, where it has
    /// no threads. One type for both barriers, because each takes long to compile.
    struct Collect {
        DeviceThreads* threads;
        void operator()() const noexcept {
            if (threads == nullptr) return;
            threads->all_healthy_ = threads->arrived_healthy_.exchange(true, std::memory_order_relaxed);
        }
    };

    void* object_ = nullptr;
    void (*call_)(void*, int) = nullptr;
    FixedArray<std::exception_ptr> errors_;
    std::atomic<bool> arrived_healthy_{true};
    bool all_healthy_ = true;
    std::barrier<Collect> edge_, inside_;
    pid_t process_;
    FixedArray<std::thread> threads_;
};

#ifndef CUPOLA_OPS

CUPOLA_INLINE DeviceThreads::DeviceThreads(int devices)
    : errors_(static_cast<std::size_t>(devices)),
      edge_(devices + 1, Collect{nullptr}),
      inside_(devices, Collect{this}),
      process_(getpid()),
      threads_(errors_.size()) {
    int started = 0;
    try {
        for (; started < devices; ++started) {
            threads_[static_cast<std::size_t>(started)] = std::thread([this, device = started] { work(device); });
        }
    } catch (const std::system_error& error) {
        threads_.keep_first(static_cast<std::size_t>(started));
        for (int missing = started; missing < devices; ++missing) edge_.arrive_and_drop();
        stop();
        throw DeviceError(
            text("the threads of only ", started, " of ", devices, " devices could be started: ", error.what()));
    }
}

CUPOLA_INLINE DeviceThreads::~DeviceThreads() { stop(); }

[[gnu::noinline]] CUPOLA_INLINE void DeviceThreads::run_job() {
    edge_.arrive_and_wait();
    edge_.arrive_and_wait();
    std::exception_ptr first;
    for (std::exception_ptr& error : errors_) {
        std::exception_ptr taken = std::exchange(error, nullptr);
        if (!first) first = std::move(taken);
    }
    if (first) std::rethrow_exception(first);
}

CUPOLA_INLINE void DeviceThreads::stop() {
    if (!has_threads()) {
        for (std::thread& thread : threads_) thread.detach();
        return;
    }
    call_ = nullptr;
    edge_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
}

CUPOLA_INLINE void DeviceThreads::work(int device) {
    for (;;) {
        edge_.arrive_and_wait();
        if (call_ == nullptr) return;
        try {
            call_(object_, device);
        } catch (...) {
            errors_[static_cast<std::size_t>(device)] = std::current_exception();
        }
        edge_.arrive_and_wait();
    }
}

#endif

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
