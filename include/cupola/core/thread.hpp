// SPDX-License-Identifier: Apache-2.0
//
// Thread: a thread that is joined when its object is destroyed; a failure to start it throws an Error. std::jthread,
// which joins too, is experimental in libc++; nothing here needs its stop token.
#pragma once

#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// What a thread is for, and how many threads are wanted for it, for the error of a thread that cannot be started.
struct ThreadPurpose {
    /// Follows "threads for" in the error: "the decoding of images".
    std::string_view what;
    /// How many of them were started before this one, and how many there will be.
    int started = 0, wanted = 1;
};

/// The error of a thread that could not be started: "only 2 of 8 threads for the decoding of images could be started:
/// Resource temporarily unavailable (error 11)".
[[noreturn, gnu::cold]] void throw_thread_error(const ThreadPurpose& purpose, int error);

/// A thread, or none. The destructor joins it, so the owner of a thread that waits has to tell it to end first.
class Thread {
public:
    Thread() = default;
    /// Runs `f` in a new thread. Throws Error with the system's error number if the thread cannot be started.
    template <class F>
    Thread(const ThreadPurpose& purpose, F&& f) {
        try {
            thread_ = std::thread(std::forward<F>(f));
        } catch (const std::system_error& error) {
            throw_thread_error(purpose, error.code().value());
        } catch (const std::bad_alloc&) {
            throw_thread_error(purpose, ENOMEM);
        }
    }
    Thread(Thread&& other) noexcept = default;
    Thread& operator=(Thread&& other) noexcept {
        join();
        thread_ = std::move(other.thread_);
        return *this;
    }
    ~Thread() { join(); }

    /// Waits for the end of the thread, if there is one.
    void join() {
        if (thread_.joinable()) thread_.join();
    }
    /// Detaches the thread, if there is one.
    void detach() {
        if (thread_.joinable()) thread_.detach();
    }

private:
    std::thread thread_;
};

inline void throw_thread_error(const ThreadPurpose& purpose, int error) {
    throw Error(text("only ", purpose.started, " of ", purpose.wanted, purpose.wanted == 1 ? " thread" : " threads",
                     " for ", purpose.what, " could be started: ", std::generic_category().message(error), " (error ",
                     error, ")"));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
