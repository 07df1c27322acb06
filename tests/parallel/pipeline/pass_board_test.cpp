// SPDX-License-Identifier: Apache-2.0
#include <cupola/parallel/pipeline/pass_board.hpp>

#include "../../test.hpp"

#include <thread>
#include <vector>

#include <cupola/core/error.hpp>

#include "../../throws_with.hpp"

using namespace cupola;

TEST_CASE("a wait for a pass sees what was written before it was done") {
    constexpr std::size_t passes = 200;
    impl::PassBoard board(2 * passes);
    for (int step = 0; step < 3; ++step) {
        board.clear();
        std::vector<std::size_t> values(2 * passes);
        bool all = true;
        std::thread other([&] {
            for (std::size_t i = 0; i < passes; ++i) {
                if (!board.wait_for(i)) return;
                values[passes + i] = values[i] + 1;
                board.set_done(passes + i);
            }
        });
        for (std::size_t i = 0; i < passes; ++i) {
            values[i] = 7 * i;
            board.set_done(i);
            if (i % 3 == 0) all = all && board.wait_for(passes + i) && values[passes + i] == 7 * i + 1;
        }
        other.join();
        CHECK(all);
        CHECK_NOTHROW(board.rethrow());
    }
}
TEST_CASE("a failure ends every wait, and the first error is kept until the next step") {
    impl::PassBoard board(2);
    const auto fail = [&](const char* what) { board.fail(std::make_exception_ptr(DataError(what))); };
    board.set_done(0);
    CHECK(board.wait_for(0));
    std::vector<char> results(2, 1);
    std::vector<std::thread> others;
    for (char& result : results) others.emplace_back([&board, &result] { result = board.wait_for(1) ? 1 : 0; });
    fail("first");
    fail("second");
    for (std::thread& each : others) each.join();
    CHECK(results == std::vector<char>{0, 0});
    CHECK(!board.wait_for(0));
    CHECK(message_of<DataError>([&] { board.rethrow(); }) == "first");
    board.clear();
    board.set_done(1);
    CHECK(board.wait_for(1));
    CHECK_NOTHROW(board.rethrow());
}
