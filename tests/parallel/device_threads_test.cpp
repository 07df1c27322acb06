// SPDX-License-Identifier: Apache-2.0
//
// Covers: cupola/parallel/replicas/device_threads.hpp
#include "../test.hpp"

#include <sched.h>
#include <cupola/core/error.hpp>
#include <cupola/device/host.hpp>
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
TEST_CASE("the threads that the thread of a device starts are bound to processors of their own, and not to its one") {
    std::vector<cpu_set_t> masks(2);
    const auto own = [&](int device) {
        const HostContext context(device, {.threads = 1});
        context.own_thread(2);
        REQUIRE(sched_getaffinity(0, sizeof(cpu_set_t), &masks[static_cast<std::size_t>(device)]) == 0);
    };
    cpu_set_t two = impl::processor_set().set;
    for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &two) && ++kept > 2) CPU_CLR(cpu, &two);
    }
    std::thread([&] {
        REQUIRE(sched_setaffinity(0, sizeof two, &two) == 0);
        own(0);
        impl::DeviceThreads(1).run([&](int device) { own(device + 1); });
    }).join();
    cpu_set_t of_both;
    CPU_OR(&of_both, &masks[0], &masks[1]);
    CHECK(CPU_EQUAL(&of_both, &two));
    if (CPU_COUNT(&two) == 2) {
        CHECK(CPU_COUNT(&masks[0]) == 1);
        CHECK(CPU_COUNT(&masks[1]) == 1);
    }
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
