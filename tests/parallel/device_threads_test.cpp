// SPDX-License-Identifier: Apache-2.0
//
// Covers: cupola/parallel/replicas/device_threads.hpp
#include "../test.hpp"

#include <cupola/core/error.hpp>
#include <cupola/parallel/replicas/device_threads.hpp>

#include "child_process.hpp"
#include "few_threads.hpp"

TEST_CASE("each device has a thread of its own") {
    impl::DeviceThreads threads(3);
    std::vector<std::thread::id> ids(3);
    threads.run([&](int device) { ids[static_cast<std::size_t>(device)] = std::this_thread::get_id(); });
    CHECK(ids[0] != ids[1]);
    CHECK(ids[1] != ids[2]);
    CHECK(ids[0] != ids[2]);
}
TEST_CASE("child: threads for two of four devices" * doctest::skip()) {
    limit_threads(2);
    CHECK_THROWS_WITH_AS(
        impl::DeviceThreads(4),
        "only 2 of 4 threads for devices could be started: Resource temporarily unavailable (error 11)", DeviceError);
}
TEST_CASE("devices for which there are not enough threads are an error, and those that run end" *
          doctest::skip(!threads_can_be_limited)) {
    const ChildResult child = run_in_child("child: threads for two of four devices", {});
    CHECK_MESSAGE(child.passed, child.output);
}
