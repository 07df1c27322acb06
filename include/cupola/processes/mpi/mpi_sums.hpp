// SPDX-License-Identifier: Apache-2.0
//
// MpiSums: nonblocking sums over all processes. MPI makes progress only inside its calls, so a thread posts each sum by
// MPI_Iallreduce and polls it, with a sleep between two polls. While the caller waits in finish(), the caller polls and
// the thread does not.
#pragma once

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <ctime>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

#include <cupola/core/thread.hpp>
#include <cupola/device/processors.hpp>
#include <cupola/processes/mpi/mpi_calls.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/watch/exchange_watchdog.hpp>
#include <cupola/processes/watch/poll_pause.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class MpiSums {
public:
    /// Uses a duplicate of the communicator `all`; collective. Both arguments must outlive the object. Throws Error if
    /// no thread can be created.
    [[gnu::cold]] MpiSums(MPI_Comm all, ExchangeWatchdog& watchdog) : watchdog_(watchdog) {
        check_mpi(MPI_Comm_dup(all, &sums_), "MPI_Comm_dup");
        check_mpi(MPI_Comm_set_errhandler(sums_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        thread_ = Thread({.what = "the sums of the processes"}, [this] { run(); });
    }
    MpiSums(const MpiSums&) = delete;
    MpiSums& operator=(const MpiSums&) = delete;
    ~MpiSums() { stop(); }
    /// After a failure: no sum is begun, posted or polled here any more.
    void stop() {
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        changed_.notify_one();
        thread_.join();
        watchdog_.end_sums();
    }
    /// Frees the communicator, on all processes, when no sums are pending.
    void free() { MPI_Comm_free(&sums_); }

    void begin(const ExchangeName& name, std::span<float> values) {
        {
            const std::scoped_lock lock(mutex_);
            if (ends_) return;
            if (complete()) watchdog_.begin_sums(name);
            for (std::size_t begin = 0; begin < values.size(); begin += max_elements)
                begun_.push_back(values.subspan(begin, std::min(max_elements, values.size() - begin)));
        }
        changed_.notify_one();
    }

    /// Returns when all sums are complete; calls `waits` between two polls. Throws the error of the first sum that
    /// failed; no later one is complete then.
    template <class Waits>
    void finish(Waits&& waits) {
        {
            const std::scoped_lock lock(mutex_);
            finishes_ = true;
        }
        {
            const std::scoped_lock requests_lock(requests_mutex_);
            PollPause pause;
            while (!ended()) {
                if (progress()) pause = {};
                waits();
                pause();
            }
            // The thread may already be waiting for requests_mutex_ since before finishes_ was set. It then sees both
            // lists empty: if it saw the sums without their requests, it would post them again.
            const std::scoped_lock lock(mutex_);
            requests_.clear();
            begun_.clear();
            finished_ = 0;
            finishes_ = false;
            watchdog_.end_sums();
        }
        if (error_) std::rethrow_exception(error_);
    }

private:
    /// MPI takes the number of elements as an int.
    static constexpr std::size_t max_elements = INT_MAX;
    /// The sleep between two polls of the thread. A shorter one takes more time from the computation than it saves in
    /// communication: at 1 Gbit/s a step took 1.03 of its limit with 20 us and 0.97 to 0.98 with 0.3 to 1 ms. The
    /// system's socket buffers are sufficient for the meantime.
    static constexpr long sleep_ns = 500'000;

    [[nodiscard]] bool complete() const { return finished_ == begun_.size(); }
    [[nodiscard]] bool ended() {
        const std::scoped_lock lock(mutex_);
        return complete() || error_;
    }

    /// Posts the sums that were begun and polls the posted ones. Called with requests_mutex_ held and mutex_ not held.
    /// Returns whether a sum has completed.
    bool progress() {
        try {
            for (std::span<float> values; next_to_post(values);) {
                requests_.push_back(MPI_REQUEST_NULL);
                const auto size = static_cast<int>(values.size());
                check_mpi(serialized([&] {
                              return MPI_Iallreduce(MPI_IN_PLACE, values.data(), size, MPI_FLOAT, MPI_SUM, sums_,
                                                    &requests_.back());
                          }),
                          "MPI_Iallreduce");
            }
            if (requests_.empty()) return false;
            done_.resize(requests_.size());
            int count = 0;
            check_mpi(serialized([&] {
                          return MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                              done_.data(), MPI_STATUSES_IGNORE);
                      }),
                      "MPI_Testsome");
            if (count <= 0) return false;
            const std::scoped_lock lock(mutex_);
            finished_ += static_cast<std::size_t>(count);
            complete() ? watchdog_.end_sums() : watchdog_.progress_sums();
        } catch (...) {
            const std::scoped_lock lock(mutex_);
            error_ = std::current_exception();
            watchdog_.end_sums();
        }
        return true;
    }
    [[nodiscard]] bool next_to_post(std::span<float>& values) {
        const std::scoped_lock lock(mutex_);
        if (requests_.size() == begun_.size()) return false;
        values = begun_[requests_.size()];
        return true;
    }

    void run() {
        leave_place();
        std::unique_lock lock(mutex_);
        while (!ends_) {
            if (complete() || finishes_ || error_) {
                changed_.wait(lock);
                continue;
            }
            lock.unlock();
            {
                const std::scoped_lock requests_lock(requests_mutex_);
                progress();
            }
            const timespec time{.tv_sec = 0, .tv_nsec = sleep_ns};
            nanosleep(&time, nullptr);
            lock.lock();
        }
    }

    ExchangeWatchdog& watchdog_;
    MPI_Comm sums_ = MPI_COMM_NULL;

    /// Held by the thread that calls MPI. Guards the requests, which belong to the first elements of begun_, in the
    /// same order. A thread that locks mutex_ too locks it second; a request is removed together with its sum, with
    /// both locked.
    std::mutex requests_mutex_;
    std::vector<MPI_Request> requests_;
    std::vector<int> done_;

    /// Guards the following members; never held during an MPI call.
    std::mutex mutex_;
    std::condition_variable changed_;
    /// The sums since the last finish(), and how many of them are complete.
    std::vector<std::span<float>> begun_;
    std::size_t finished_ = 0;
    bool finishes_ = false, ends_ = false;
    std::exception_ptr error_;
    Thread thread_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
