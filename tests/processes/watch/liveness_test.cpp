// SPDX-License-Identifier: Apache-2.0
//
// What a process can prove about the end of another one, and the memory that they share; the others are children of the test.
//
// Covers: cupola/processes/watch/liveness.hpp, cupola/processes/watch/process_id.hpp, cupola/processes/watch/shared_memory.hpp
#include <cupola/processes/watch/liveness.hpp>
#include <cupola/processes/watch/process_id.hpp>
#include <cupola/processes/watch/shared_memory.hpp>

#include "../../test.hpp"

#include <sys/types.h>

#include <cupola/core/error.hpp>

#include "child_process.hpp"
#include "throws_with.hpp"

using namespace cupola::impl;

namespace {

/// A process that waits for its end; `prepare` is called in it, and then in this process.
template <class Prepare>
class Child : NotCopied {
public:
    explicit Child(Prepare prepare) {
        int ready[2] = {};
        REQUIRE(pipe(ready) == 0);
        id_ = fork();
        REQUIRE(id_ >= 0);
        if (id_ == 0) {
            prepare();
            const char byte = 0;
            const bool told = write(ready[1], &byte, 1) == 1;
            while (told) pause();
            _exit(1);
        }
        char byte = 0;
        REQUIRE(read(ready[0], &byte, 1) == 1);
        close(ready[0]);
        close(ready[1]);
    }
    ~Child() { end(); }
    [[nodiscard]] pid_t id() const { return id_; }
    /// Without the parent's look at its end, which `end` takes.
    void kill_only() const {
        kill(id_, SIGKILL);
        siginfo_t info{};
        waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT);
    }
    void end() {
        if (id_ <= 0) return;
        kill(id_, SIGKILL);
        waitpid(id_, nullptr, 0);
        id_ = 0;
    }

private:
    pid_t id_ = 0;
};

}  // namespace

TEST_CASE("a process that was killed is told from one that lives, is stopped, has left, or is of another machine") {
    SharedMemory memory(Liveness::bytes_of(5));
    Liveness liveness(memory.data(), 5);
    const auto begins = [&](int number) { return [&liveness, number] { liveness.begin(number); }; };
    Child lives(begins(0)), stopped(begins(1)), killed(begins(2));
    Child leaves([&] {
        liveness.begin(3);
        *liveness.exit_flag(3) = 1;
    });
    kill(stopped.id(), SIGSTOP);
    killed.kill_only();
    leaves.end();
    CHECK_FALSE(liveness.was_killed(0));
    CHECK_FALSE(liveness.was_killed(1));
    CHECK(liveness.was_killed(2));  // its parent has not looked at it
    const pid_t of_killed = killed.id();
    killed.end();
    CHECK_FALSE(process_exists(of_killed));
    CHECK(liveness.was_killed(2));
    CHECK_FALSE(liveness.was_killed(3));
    CHECK(liveness.has_exited(3));
    CHECK_FALSE(liveness.has_exited(2));
    // Process 4 has never begun here.
    CHECK_FALSE(liveness.was_killed(4));
    CHECK_THROWS_WITH_AS(static_cast<void>(liveness.was_killed(5)), "process 5 is none of 5", cupola::InvalidArgument);
    // One that is being ended is waited for.
    Child ends(begins(4));
    kill(ends.id(), SIGKILL);
    CHECK(liveness.was_killed(4));
}

TEST_CASE("memory is not opened by a number that names another process or another file") {
    const SharedMemory memory(1000), other(1000), larger(1001);
    const auto refused = [](const SharedMemory::Address& address) {
        return message_of<cupola::DeviceError>([&] { const SharedMemory opened(address); });
    };
    CHECK(SharedMemory(memory.address()).data() != nullptr);
    SharedMemory::Address address = memory.address();
    address.process.pid_namespace = address.process.pid_namespace + 1;
    CHECK(contains(refused(address), "the process is in another PID namespace, as that of another container"));
    address.process.pid_namespace = -1;
    CHECK(contains(refused(address), "the process is in another PID namespace"));
    for (const SharedMemory* each : {&other, &larger}) {
        address = memory.address();
        address.file = each->address().file;
        CHECK(contains(refused(address), "this file is not the memory"));
    }
    int ends[2] = {};
    REQUIRE(pipe(ends) == 0);
    address.file = ends[0];
    CHECK(contains(refused(address), "this file is not the memory"));
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE("of two sides of any division exactly one may go on") {
    for (int all = 1; all <= 6; ++all) {
        for (unsigned side = 1; side < 1U << all; ++side) {
            const unsigned other = ~side & ((1U << all) - 1);
            const auto goes_on = [&](unsigned of) { return may_go_on(__builtin_popcount(of), all, (of & 1U) != 0); };
            CHECK(goes_on(side) != goes_on(other));
        }
    }
    static_assert(may_go_on(3, 4, false) && may_go_on(2, 4, true) && !may_go_on(2, 4, false) && !may_go_on(1, 4, true));
}

TEST_CASE("memory of one process is written by another one, and outlives the first") {
    SharedMemory memory(10000);
    for (std::size_t i = 0; i < 10000; ++i) REQUIRE(memory.data()[i] == std::byte{0});
    const SharedMemory::Address address = memory.address();
    CHECK(wait_status_of([&] { SharedMemory(address).data()[9999] = std::byte{7}; }) == 0);
    SharedMemory second(address);
    memory = SharedMemory();
    CHECK(second.data()[9999] == std::byte{7});
    CHECK(SharedMemory(std::size_t{0}).data() != nullptr);
    const SharedMemory::Address none{.process = ProcessId::own(), .file = 99999, .bytes = 1};
    CHECK(
        contains(message_of<cupola::DeviceError>([&] { const SharedMemory opened(none); }), "/fd/99999: No such file"));
    CHECK(contains(message_of<cupola::OutOfMemory>([] { const SharedMemory made(std::size_t{1} << 60); }),
                   "cannot be made"));
}
