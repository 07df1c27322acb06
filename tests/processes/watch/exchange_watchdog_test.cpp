// SPDX-License-Identifier: Apache-2.0
//
// A wait that does not end is reported with what was waited for, and ends the process with the status 75; each case is a process of
// its own.
//
// Covers: cupola/processes/watch/exchange_watchdog.hpp
#include "../../test.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/processes/watch/exchange_watchdog.hpp>

#include "child_process.hpp"
#include "few_threads.hpp"
#include "temporary_folder.hpp"

TEST_CASE("child: sums that do not end" * doctest::skip()) {
    impl::ExchangeWatchdog watchdog(0, 3, 0.2, "");
    watchdog.begin({"the records of the replicas", 7});
    watchdog.count_missing(1, 1);
    watchdog.end();
    watchdog.begin_sums({"the sums of the gradients", 7});
    for (;;) pause();
}
TEST_CASE("child: an exchange and sums that do not end" * doctest::skip()) {
    impl::ExchangeWatchdog watchdog(0, 3, 0.2, "");
    watchdog.begin_sums({"the sums of the gradients", 7});
    watchdog.begin({"the records of the replicas", 7});
    watchdog.count_missing(2, 1);
    for (;;) pause();
}
TEST_CASE("child: sums that proceed" * doctest::skip()) {
    impl::ExchangeWatchdog watchdog(0, 3, 0.4, "");
    watchdog.begin_sums({"the sums of the gradients", 7});
    for (int i = 0; i < 12; ++i) {
        usleep(50'000);
        watchdog.progress_sums();
    }
    watchdog.end_sums();
    usleep(600'000);
}

TEST_CASE("child: an exchange with a process whose end its parent has not seen" * doctest::skip()) {
    impl::ExchangeWatchdog watchdog(0, 2, 20, "");
    const pid_t other = fork();
    if (other == 0) _exit(0);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(other), &info, WEXITED | WNOWAIT);
    watchdog.set_process_ids({0, other});
    watchdog.begin({"the records of the replicas", 7});
    watchdog.count_missing(1, 1);
    for (;;) pause();
}

TEST_CASE("a process that has ended is not waited for, also where its parent has not seen that") {
    const ChildResult ended = run_in_child("child: an exchange with a process whose end its parent has not seen", {});
    CHECK(ended.status == 75);
    CHECK(ended.output.find("process 0 has lost process 1, which does not exist any more, in the records of the "
                            "replicas of step 7; missing: process 1") != std::string::npos);
}

TEST_CASE("child: a poll for a process that has ended" * doctest::skip()) {
    impl::ExchangeWatchdog watchdog(0, 2, 20, "");
    const pid_t other = fork();
    if (other == 0) _exit(0);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(other), &info, WEXITED | WNOWAIT);
    watchdog.set_process_ids({getpid(), other});
    watchdog.end_poll({"the exchange with the centre", 7}, watchdog.fault_of_poll(monotonic_seconds(), {}));
}
TEST_CASE("threads that poll find that a process has ended, or that the deadline is over") {
    const ChildResult ended = run_in_child("child: a poll for a process that has ended", {});
    CHECK(ended.status == 75);
    CHECK(ended.output.find("process 0 has lost process 1, which does not exist any more, in the exchange with the "
                            "centre of step 7; missing: process 1\n") != std::string::npos);
    impl::ExchangeWatchdog watchdog(0, 2, 0.5, "");
    watchdog.set_process_ids({getpid(), getpid()});
    CHECK(watchdog.fault_of_poll(monotonic_seconds(), {}).empty());
    const auto late = watchdog.fault_of_poll(monotonic_seconds() - 0.6, {});
    CHECK(late.what == "has waited 0.5 s for others");
    CHECK(late.missing == "it is not known which are missing");
    // A process does not wait for itself.
    CHECK(watchdog.fault_of_poll(monotonic_seconds() - 0.6, [](int) { return true; }).missing == "missing: process 1");
    CHECK(watchdog.fault_of_poll(monotonic_seconds() - 0.6, [](int) { return false; }).missing == "none is missing");
}

namespace {

/// Waits in vain for process 1, in the folder of the variable FOLDER. A process that does not end is ended by SIGALRM.
[[noreturn]] void wait_in_vain() {
    alarm(20);
    const char* const folder = std::getenv("FOLDER");
    impl::ExchangeWatchdog watchdog(0, 2, 0.2, folder == nullptr ? "" : folder);
    watchdog.begin({"the records of the replicas", 7});
    watchdog.count_missing(1, 1);
    for (;;) pause();
}
const std::string in_vain =
    "process 0 has waited 0.2 s for others, in the records of the replicas of step 7; missing: process 1\n";

}  // namespace

TEST_CASE("child: a wait whose standard error is a full pipe" * doctest::skip()) {
    int ends[2] = {};
    REQUIRE(pipe(ends) == 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const char bytes[4096] = {};
    while (write(ends[1], bytes, sizeof bytes) > 0) continue;
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], STDERR_FILENO);
    wait_in_vain();
}
TEST_CASE("child: a wait whose file has no reader" * doctest::skip()) { wait_in_vain(); }

TEST_CASE("a process ends although its file or its standard error takes nothing") {
    const TemporaryFolder folder;
    const std::string file = folder.path("process-0.fault");
    CHECK(run_in_child("child: a wait whose standard error is a full pipe", {{"FOLDER", folder.path()}}).status == 75);
    std::string written(in_vain.size() + 1, '\0');
    const int handle = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(handle >= 0);
    written.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(handle, written.data(), written.size()))));
    close(handle);
    CHECK(written == in_vain);
    unlink(file.c_str());
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    const ChildResult fifo = run_in_child("child: a wait whose file has no reader", {{"FOLDER", folder.path()}});
    CHECK(fifo.status == 75);
    CHECK(fifo.output.find(in_vain) != std::string::npos);
}
TEST_CASE(
    "a wait for sums has the deadline, and is reported as that of the exchange beside it, which knows who is missing") {
    const ChildResult sums = run_in_child("child: sums that do not end", {});
    CHECK(!sums.passed);
    CHECK(sums.output.find(
              "process 0 has waited 0.2 s for others, in the sums of the gradients of step 7; it is not known "
              "which are missing") != std::string::npos);
    const ChildResult both = run_in_child("child: an exchange and sums that do not end", {});
    CHECK(!both.passed);
    CHECK(both.output.find("process 0 has waited 0.2 s for others, in the records of the replicas of step 7; missing: "
                           "process 2") != std::string::npos);
    CHECK(run_in_child("child: sums that proceed", {}).passed);
}

TEST_CASE("child: no thread for a watchdog" * doctest::skip()) {
    limit_threads(0);
    CHECK_THROWS_WITH_AS(impl::ExchangeWatchdog(0, 2, 20, ""),
                         "only 0 of 1 thread for the deadline of exchanges could be started: Resource temporarily "
                         "unavailable (error 11)",
                         Error);
}
TEST_CASE("a watchdog for which there is no thread is an error" * doctest::skip(!threads_can_be_limited)) {
    const ChildResult child = run_in_child("child: no thread for a watchdog", {});
    CHECK_MESSAGE(child.passed, child.output);
}
