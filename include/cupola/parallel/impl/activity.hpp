// SPDX-License-Identifier: Apache-2.0
//
// Activity: records which call of a training is in progress, so that a concurrent call is an error: from inside another
// call, from a second thread, or in a child of fork(), which has none of the training's threads.
#pragma once

#include <atomic>
#include <string_view>

#include <sys/types.h>
#include <unistd.h>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class Activity {
public:
    Activity() : process_(getpid()) {}

    /// While a Scope exists, no other may be constructed.
    class Scope {
    public:
        /// Throws InvalidArgument if a call is in progress, or in a child process.
        Scope(Activity& activity, const char* what) : activity_(activity) {
            require(getpid() == activity.process_, what,
                    " was called in a child of the process that made this training: fork() copies none of its threads; "
                    "make the training in the child");
            const char* before = nullptr;
            if (!activity.now_.compare_exchange_strong(before, what)) {
                throw_joined<InvalidArgument>({what, " was called while ", before,
                                               " is in progress, by another thread or from inside it: a training does "
                                               "one thing at a time"});
            }
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() { activity_.now_.store(nullptr); }

    private:
        Activity& activity_;
    };

private:
    std::atomic<const char*> now_{nullptr};
    pid_t process_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
