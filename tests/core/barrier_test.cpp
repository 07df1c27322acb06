// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <cupola/core/barrier.hpp>

TEST_CASE("no thread passes a barrier before all have arrived, however often they meet") {
    constexpr int threads = 3, rounds = 2000;
    Barrier barrier(threads);
    std::array<int, threads>
        written{};  // plain, so that the thread sanitizer sees an access that the barrier does not order
    std::array<int, threads> mistakes{};
    std::vector<std::thread> all;
    for (int self = 0; self < threads; ++self) {
        all.emplace_back([&, at = static_cast<std::size_t>(self)] {
            for (int round = 1; round <= rounds; ++round) {
                written[at] = round;
                barrier.arrive_and_wait();
                for (const int each : written) mistakes[at] += each != round ? 1 : 0;
                barrier.arrive_and_wait();
            }
        });
    }
    for (std::thread& each : all) each.join();
    for (const int count : mistakes) CHECK(count == 0);
}

TEST_CASE("a barrier tells every thread whether all were healthy, and forgets it") {
    constexpr int threads = 3, rounds = 300;
    Barrier barrier(threads);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> all;
    for (int self = 0; self < threads; ++self) {
        all.emplace_back([&, self] {
            for (int round = 0; round < rounds; ++round) {
                // In two of five rounds one thread fails, each in its turn; in the others none does.
                const bool fails = round % 5 < 2 && round % threads == self;
                if (barrier.arrive_and_wait(!fails) != (round % 5 >= 2)) ++wrong;
            }
        });
    }
    for (std::thread& each : all) each.join();
    CHECK(wrong == 0);
}

TEST_CASE("a barrier does not wait for threads that are left out") {
    Barrier barrier(4);
    bool arrived = false;
    std::thread other([&] {
        arrived = true;
        barrier.arrive_and_wait();
        barrier.arrive_and_wait();
    });
    barrier.leave_out(2);
    barrier.arrive_and_wait();
    CHECK(arrived);
    barrier.arrive_and_wait();  // also in the next round
    other.join();
    Barrier alone(1);
    CHECK(alone.arrive_and_wait());
    CHECK(!alone.arrive_and_wait(false));
    CHECK(alone.arrive_and_wait());
}
