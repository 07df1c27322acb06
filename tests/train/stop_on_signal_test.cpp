// SPDX-License-Identifier: Apache-2.0
#include <cupola/train/stop_on_signal.hpp>

#include "../test.hpp"

#include "child_process.hpp"
#include "throws_with.hpp"

namespace {

int handled = 0;

/// The signals' default actions, also where the tests run in the background or under nohup, which ignore one of them.
class DefaultActions : NotCopied {
public:
    DefaultActions() {
        for (std::size_t i = 0; i < all.size(); ++i) before_[i] = std::signal(all[i], SIG_DFL);
    }
    ~DefaultActions() {
        for (std::size_t i = 0; i < all.size(); ++i) std::signal(all[i], before_[i]);
    }

private:
    static constexpr std::array<int, 3> all{SIGINT, SIGTERM, SIGHUP};
    std::array<void (*)(int), all.size()> before_{};
};

}  // namespace

TEST_CASE_FIXTURE(DefaultActions, "the first SIGINT, SIGTERM or SIGHUP stops the run after the step, and is reported") {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        StopOnSignal signals;
        Run run{};
        signals.on_step({}, run);
        CHECK_FALSE(run.stop);
        CHECK(signals.signal() == 0);
        std::raise(signal);
        CHECK(signals.signal() == signal);
        CHECK_FALSE(run.stop);  // the step is finished first
        signals.on_step({}, run);
        CHECK(run.stop);
    }
}

TEST_CASE_FIXTURE(DefaultActions, "a run that another callback has stopped stays stopped") {
    StopOnSignal signals;
    Run run{.stop = true};
    signals.on_step({}, run);
    CHECK(run.stop);
}

TEST_CASE_FIXTURE(DefaultActions, "one of several processes ignores a second SIGTERM, and a second SIGINT ends it") {
    for (const int first : {SIGINT, SIGTERM}) {
        CHECK(wait_status_of([&] {
                  const StopOnSignal signals(true);
                  std::raise(first);
                  std::raise(SIGTERM);
              }) == 0);
        CHECK(WTERMSIG(wait_status_of([&] {
                  const StopOnSignal signals(true);
                  std::raise(first);
                  std::raise(SIGINT);
              })) == SIGINT);
    }
}

TEST_CASE_FIXTURE(DefaultActions, "the second signal, whichever of the two, ends the process at once") {
    for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
        for (const int second : {SIGINT, SIGTERM}) {
            const int status = wait_status_of([&] {
                const StopOnSignal signals;
                std::raise(first);
                std::raise(second);
            });
            CHECK(WIFSIGNALED(status));
            CHECK(WTERMSIG(status) == second);
        }
    }
}

TEST_CASE_FIXTURE(DefaultActions, "a terminal that is closed sends SIGHUP twice: the second one ends no process") {
    for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
        CHECK(wait_status_of([&] {
                  const StopOnSignal signals;
                  std::raise(first);
                  std::raise(SIGHUP);
                  _exit(signals.signal() == first ? 0 : 1);
              }) == 0);
    }
}

TEST_CASE_FIXTURE(DefaultActions,
                  "a signal that was ignored stays ignored, before and after another one, and after the object") {
    for (const int ignored : {SIGINT, SIGTERM, SIGHUP}) {
        CAPTURE(ignored);
        const auto former = std::signal(ignored, SIG_IGN);
        {
            const StopOnSignal signals;
            std::raise(ignored);
            CHECK(signals.signal() == 0);
            const int other = ignored == SIGINT ? SIGTERM : SIGINT;
            std::raise(other);
            std::raise(ignored);
            CHECK(signals.signal() == other);
        }
        std::raise(ignored);
        std::signal(ignored, former);
    }
}

TEST_CASE_FIXTURE(DefaultActions, "one signal alone ends no process") {
    const int status = wait_status_of([&] {
        const StopOnSignal signals;
        std::raise(SIGTERM);
    });
    CHECK(WIFEXITED(status));
}

TEST_CASE_FIXTURE(DefaultActions, "the former handlers come back, also after a signal") {
    const auto former = std::signal(SIGTERM, [](int) { ++handled; });
    {
        const StopOnSignal signals;
        std::raise(SIGTERM);
        CHECK(handled == 0);
        CHECK(signals.signal() == SIGTERM);
    }
    std::raise(SIGTERM);
    CHECK(handled == 1);
    std::signal(SIGTERM, former);
}

TEST_CASE_FIXTURE(DefaultActions, "a signal is that of this object, not of one before it") {
    {
        const StopOnSignal signals;
        std::raise(SIGINT);
    }
    const StopOnSignal signals;
    CHECK(signals.signal() == 0);
}

TEST_CASE_FIXTURE(DefaultActions, "two objects at the same time are rejected, one after the other are not") {
    {
        const StopOnSignal signals;
        CHECK(message_of<InvalidArgument>([] { StopOnSignal second; }) ==
              "only one StopOnSignal object can exist at a time: a signal has one handler");
        CHECK(message_of<InvalidArgument>([] { StopOnSignal third; }) ==
              "only one StopOnSignal object can exist at a time: a signal has one handler");
    }
    CHECK(message_of<InvalidArgument>([] { StopOnSignal next; }) == "(no exception)");
}
