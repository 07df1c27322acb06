// SPDX-License-Identifier: Apache-2.0
//
// PassBoard: which passes of a step's batches are done, for the devices of a group that wait for each other's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

#include <cupola/core/fixed_array.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class PassBoard {
public:
    PassBoard() = default;
    explicit PassBoard(std::size_t passes) : done_(passes) {}

    /// Before a step, while no device is at work.
    void clear() {
        for (std::atomic<bool>& each : done_) each.store(false, std::memory_order_relaxed);
        failed_.store(false, std::memory_order_relaxed);
        error_ = nullptr;
    }
    /// What the caller has written before is visible to those that wait for the pass.
    void set_done(std::size_t pass) {
        done_[pass].store(true, std::memory_order_release);
        notify();
    }
    /// Returns when the pass is done; false if a device has failed instead.
    [[nodiscard]] bool wait_for(std::size_t pass) {
        for (;;) {
            const std::uint32_t seen = changes_.load(std::memory_order_acquire);
            if (failed_.load(std::memory_order_acquire)) return false;
            if (done_[pass].load(std::memory_order_acquire)) return true;
            changes_.wait(seen, std::memory_order_acquire);
        }
    }
    /// Every wait ends. Of several errors the first is kept.
    [[gnu::cold]] void fail(std::exception_ptr error) {
        {
            const std::lock_guard lock(mutex_);
            if (error_ == nullptr) error_ = std::move(error);
        }
        failed_.store(true, std::memory_order_release);
        notify();
    }
    /// Throws the error, if a device has failed; after the last pass of all devices.
    void rethrow() const {
        if (error_ != nullptr) std::rethrow_exception(error_);
    }

private:
    void notify() {
        changes_.fetch_add(1, std::memory_order_release);
        changes_.notify_all();
    }

    FixedArray<std::atomic<bool>> done_;
    std::atomic<bool> failed_{false};
    /// Changes with every pass, so that a wait has one address.
    std::atomic<std::uint32_t> changes_{0};
    std::mutex mutex_;
    std::exception_ptr error_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
