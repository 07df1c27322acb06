// SPDX-License-Identifier: Apache-2.0
#include <cupola/core/write_signals.hpp>

#include "../test.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/resource.h>

#include "child_process.hpp"

namespace {

/// How a process ends that may write files of 10 bytes: -1 for a signal, or what `f` returns.
template <class Function>
int exit_of(Function&& f) {
    const int status = wait_status_of([&] {
        std::signal(SIGXFSZ, SIG_DFL);
        const rlimit limit{10, 10};
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(f());
    });
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A file without a name.
class Nameless : NotCopied {
public:
    Nameless() : handle_(mkstemp(name_)) { unlink(name_); }
    ~Nameless() { close(handle_); }
    /// The error of a write beyond the limit, 0 for none.
    [[nodiscard]] int write_beyond() const { return pwrite(handle_, "x", 1, 10) == 1 ? 0 : errno; }

private:
    char name_[32] = "/tmp/cupola_limit_XXXXXX";
    int handle_;
};

bool pending() {
    sigset_t signals;
    sigpending(&signals);
    return sigismember(&signals, SIGXFSZ) == 1;
}

volatile std::sig_atomic_t calls = 0;

}  // namespace

TEST_CASE("a write beyond the limit on the size of files is an error and raises no signal, then or later") {
    CHECK(exit_of([] { return Nameless().write_beyond(); }) == -1);
    CHECK(exit_of([] {
              const Nameless file;
              int error = 0;
              {
                  const WriteSignalsBlock block;
                  error = file.write_beyond();
                  if (error != EFBIG || file.write_beyond() != EFBIG) return 1;
              }
              return pending() ? 2 : 0;
          }) == 0);
}

TEST_CASE("afterwards the signal's disposition and errno are as before") {
    CHECK(exit_of([] {
              const Nameless file;
              {
                  const WriteSignalsBlock outer;
                  { const WriteSignalsBlock inner; }
                  if (file.write_beyond() != EFBIG) return 1;
                  errno = ENOSPC;
              }
              return errno == ENOSPC ? 0 : 2;
          }) == 0);
    CHECK(exit_of([] {
              { const WriteSignalsBlock block; }
              return Nameless().write_beyond();
          }) == -1);
    CHECK(exit_of([] {
              std::signal(SIGXFSZ, [](int) { calls = calls + 1; });
              const Nameless file;
              {
                  const WriteSignalsBlock block;
                  if (file.write_beyond() != EFBIG) return 1;
              }
              if (calls != 0) return 2;
              return file.write_beyond() == EFBIG && calls == 1 ? 0 : 3;
          }) == 0);
}

TEST_CASE("a signal that the caller had blocked stays pending") {
    CHECK(exit_of([] {
              const Nameless file;
              sigset_t signal;
              sigemptyset(&signal);
              sigaddset(&signal, SIGXFSZ);
              pthread_sigmask(SIG_BLOCK, &signal, nullptr);
              if (file.write_beyond() != EFBIG || !pending()) return 1;
              { const WriteSignalsBlock block; }
              return pending() ? 0 : 2;
          }) == 0);
}

TEST_CASE("a write to a pipe that nobody reads is an error and raises no signal, then or later") {
    const auto write_in_vain = [](bool blocked) {
        std::signal(SIGPIPE, SIG_DFL);
        int ends[2];
        if (pipe(ends) != 0 || close(ends[0]) != 0) return 1;
        if (!blocked) return write(ends[1], "x", 1) == 1 ? 2 : 3;
        const WriteSignalsBlock block;
        return write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 4;
    };
    CHECK(exit_of([&] { return write_in_vain(false); }) == -1);
    CHECK(exit_of([&] { return write_in_vain(true); }) == 0);
}

TEST_CASE("another thread's writes are not affected") {
    CHECK(exit_of([] {
              const WriteSignalsBlock block;
              // A thread inherits the signal mask of its creator, so it unblocks the signal itself.
              std::thread([] {
                  sigset_t signal;
                  sigemptyset(&signal);
                  sigaddset(&signal, SIGXFSZ);
                  pthread_sigmask(SIG_UNBLOCK, &signal, nullptr);
                  (void)Nameless().write_beyond();
              }).join();
              return 0;
          }) == -1);
}
