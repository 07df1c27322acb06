// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <cupola/core/error.hpp>
#include <cupola/core/thread.hpp>

#include "child_process.hpp"
#include "few_threads.hpp"

TEST_CASE("a thread is joined where its object ends, or takes another thread") {
    std::atomic<int> ended = 0;
    {
        impl::Thread none;
        none.join();
        impl::Thread first({.what = "a test"}, [&] { ++ended; });
        impl::Thread second({.what = "a test"}, [&] { ++ended; });
        first = std::move(second);  // waits for the thread that it had
        CHECK(ended >= 1);
    }
    CHECK(ended == 2);
}

TEST_CASE("child: room for two threads" * doctest::skip()) {
    limit_threads(2);
    std::atomic<bool> end = false;
    std::vector<impl::Thread> threads;
    const auto start = [&] {
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back(impl::ThreadPurpose{.what = "a test", .started = i, .wanted = 4},
                                 [&] { end.wait(false); });
        }
    };
    CHECK_THROWS_WITH_AS(
        start(), "only 2 of 4 threads for a test could be started: Resource temporarily unavailable (error 11)", Error);
    CHECK(threads.size() == 2);
    end = true;
    end.notify_all();
}

TEST_CASE("a thread that cannot be started is an error with its number, and those that run are joined" *
          doctest::skip(!threads_can_be_limited)) {
    const ChildResult child = run_in_child("child: room for two threads", {});
    CHECK_MESSAGE(child.passed, child.output);
}
