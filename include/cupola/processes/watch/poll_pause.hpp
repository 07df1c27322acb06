// SPDX-License-Identifier: Apache-2.0
//
// PollPause: the pause between two polls: none for the first polls, then it yields the processor, and after about a
// millisecond it sleeps, so that processes that share a processor do not slow each other down.
#pragma once

#include <sched.h>
#include <time.h>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class PollPause {
public:
    void operator()() {
        ++polls_;
        if (polls_ < 100) return;
        if (polls_ < 1000) {
            sched_yield();
            return;
        }
        const timespec time{.tv_sec = 0, .tv_nsec = 50'000};
        nanosleep(&time, nullptr);
    }

private:
    int polls_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
