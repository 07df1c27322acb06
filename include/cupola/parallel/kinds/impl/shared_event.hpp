// SPDX-License-Identifier: Apache-2.0
//
// SharedEvent: lets threads of several processes of one machine sleep until what they wait for may have changed, in
// memory that these processes share, where all its bytes are 0 at first. A wait is bounded, because the process that
// would end it may be killed; and it may end without a reason. SharedLock: a lock of such memory.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class SharedEvent {
public:
    /// Read before what is waited for is looked at.
    [[nodiscard]] std::uint32_t changes() const { return changes_.load(); }
    /// Returns when notify() was called since `changes` was read, and after 20 ms at the latest.
    void wait(std::uint32_t changes) {
        constexpr timespec at_most{.tv_sec = 0, .tv_nsec = 20'000'000};
        ++sleepers_;
        call(FUTEX_WAIT, changes, &at_most);
        --sleepers_;
    }
    /// After what others wait for has changed.
    void notify() {
        ++changes_;
        // A sleeper that is not counted yet finds another number of changes, and does not sleep.
        if (sleepers_.load() != 0) call(FUTEX_WAKE, INT_MAX, nullptr);
    }

private:
    static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);
    /// Not that of one process alone, as the wait of std::atomic is.
    void call(int operation, std::uint32_t value, const timespec* at_most) {
        syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&changes_), operation, value, at_most, nullptr, 0);
    }

    /// Their operations have one order.
    std::atomic<std::uint32_t> changes_, sleepers_;
};

class SharedLock {
public:
    [[nodiscard]] bool try_lock() {
        std::uint32_t free = 0;
        return held_.compare_exchange_strong(free, 1, std::memory_order_acquire);
    }
    void unlock() {
        held_.store(0, std::memory_order_release);
        released_.notify();
    }
    /// Notified when it is unlocked.
    [[nodiscard]] SharedEvent& released() { return released_; }

private:
    std::atomic<std::uint32_t> held_;
    SharedEvent released_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
