// SPDX-License-Identifier: Apache-2.0
//
// NcclEnvironment: lets a training with NcclAllReduce continue with fewer replicas after one of its processes was lost.
// Create one per process, before the training. All processes must be on one machine; the start of the training throws
// DeviceError if they do not find each other there.
//
//   NcclEnvironment nccl({.name = "run1"});
//   return nccl.survive([&] {
//       Training training({.replicas = 2 * nccl.count(), .averaging = {.environment = &nccl}});
//       if (nccl.kept() != nullptr) training.restore(*nccl.kept());
//       while (training.step() < 1000) {
//           training.step(batches);
//           nccl.keep(training.state());
//       }
//       return 0;
//   });
//
// No process takes over the replicas of a lost one: the weights by samples count the remaining replicas. Training
// continues after the last state that all survivors have kept, usually with the step that failed. keep() after each
// step costs a copy of the state to the host per step: call it less often if that takes too long.
//
// The communicators of the survivors are made from the previous ones by ncclCommShrink (NCCL 2.27).
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/processes/watch/launcher_variables.hpp>
#include <cupola/processes/watch/liveness.hpp>
#include <cupola/processes/watch/socket.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct NcclEnvironmentOptions {
    /// The same in all processes of the training and in no other training on this machine: at most 64 bytes.
    std::string name{};
    /// As in NcclAllReduce: with `processes` = 0, both are taken from the launcher's environment variables.
    int processes = 0, process = 0;
};

class NcclEnvironment {
public:
    static constexpr int max_processes = 256;

    /// Throws InvalidArgument if `process` is not one of `processes` and for a name that is empty or too long, and
    /// DeviceError if another process has the same name and number.
    [[gnu::cold]] explicit NcclEnvironment(NcclEnvironmentOptions options) : options_(std::move(options)) {
        if (options_.processes == 0) {
            const impl::LaunchedProcess launched = impl::launched_process();
            options_.processes = launched.count;
            options_.process = launched.number;
        }
        require(options_.processes >= 1 && options_.processes <= max_processes && options_.process >= 0 &&
                    options_.process < options_.processes,
                "process ", options_.process, " of ", options_.processes,
                " is none of an NcclEnvironment, which has 1 to ", max_processes, " processes");
        require(!options_.name.empty() && options_.name.size() <= 64,
                "the name of an NcclEnvironment has 1 to 64 bytes, not ", options_.name.size());
        for (int p = 0; p < options_.processes; ++p) numbers_.push_back(p);
        listener_ = Socket(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        socklen_t size = 0;
        const sockaddr_un at = address_of(options_.process, size);
        require<DeviceError>(listener_.get() >= 0 &&
                                 bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0 &&
                                 listen(listener_.get(), max_processes) == 0,
                             "process ", options_.process, " of the training ", options_.name,
                             " cannot be found by the others: ", std::strerror(errno));
    }
    NcclEnvironment(const NcclEnvironment&) = delete;
    NcclEnvironment& operator=(const NcclEnvironment&) = delete;
    ~NcclEnvironment() { end_communicators(); }

    /// The number of surviving processes, and the number of this one among them.
    [[nodiscard]] int count() const { return static_cast<int>(numbers_.size()); }
    [[nodiscard]] int number() const {
        return static_cast<int>(std::find(numbers_.begin(), numbers_.end(), options_.process) - numbers_.begin());
    }
    /// The number of processes at the start; and the lost processes, by their numbers at the start.
    [[nodiscard]] int started() const { return options_.processes; }
    [[nodiscard]] std::span<const int> lost() const { return lost_; }

    /// Stores the state after a step; the one before it is kept too.
    void keep(TrainingState state) {
        if (kept_[1]) kept_[0] = std::move(kept_[1]);
        kept_[1] = std::move(state);
    }
    /// The state from which the training continues; null at the start.
    [[nodiscard]] const TrainingState* kept() const { return kept_[1] ? &*kept_[1] : nullptr; }

    /// Calls `run()` and returns its result. If processes are lost, calls it again on the survivors, as often as that
    /// happens. A training that cannot continue ends as it does without an NcclEnvironment: if the survivors are not
    /// more than half of the processes, or half including the first; or if a process that still exists does not answer.
    template <class Run>
    int survive(Run&& run) {
        for (;;) {
            try {
                return run();
            } catch (const ProcessLost&) {
                if (communicators_.empty()) throw;
            }
            std::string list;
            for (const int p : lost_) list += text(list.empty() ? "" : ", ", p);
            if (number() == 0) {
                std::fprintf(stderr, "lost of %d processes: %s; %d go on with their replicas from step %lld\n",
                             started(), list.c_str(), count(),
                             kept() == nullptr ? 0LL : static_cast<long long>(kept()->step));
            }
        }
    }

    /// For NcclAllReduce: the surviving processes, by their previous numbers. Empty, with the reason in `why`, if this
    /// process cannot continue or no process is lost. Waits up to `seconds` for the others and calls `on_wait`
    /// meanwhile.
    [[nodiscard, gnu::cold]] std::vector<int> agree(double seconds, const std::function<void()>& on_wait,
                                                    std::string& why);
    /// For NcclAllReduce: whether another process has called agree(), because it has noticed a loss. False while a
    /// thread of this process is in agree().
    [[nodiscard, gnu::cold]] bool agreement_requested();
    /// For NcclAllReduce, before the communicators start: waits up to `seconds` for the environments of the other
    /// processes, and throws DeviceError if one of them cannot be found.
    [[gnu::cold]] void require_all_found(double seconds) const {
        const double deadline = monotonic_seconds() + seconds;
        for (int p = 0; p < count(); ++p) {
            bool exists = p == number();
            while (!exists) {
                (void)connected(numbers_[static_cast<std::size_t>(p)], exists);
                if (exists || monotonic_seconds() >= deadline) break;
                poll(nullptr, 0, 20);
            }
            require<DeviceError>(exists, "process ", p, " of the training ", options_.name,
                                 " cannot be found by process ", number(),
                                 ": the processes of an NcclEnvironment have the same name and user, and run on one "
                                 "machine, in one network namespace; or it has ended");
        }
    }
    /// Stores the communicators of the survivors, one per device, and makes `left` the processes. `end` destroys
    /// communicators that are never taken, within its own time limit.
    void store_communicators(std::vector<void*> communicators, std::function<void(const std::vector<void*>&)> end,
                             const std::vector<int>& left) {
        end_communicators();
        const std::lock_guard lock(requests_mutex_);
        requests_.clear();
        communicators_ = std::move(communicators);
        end_ = std::move(end);
        std::vector<int> numbers;
        numbers.reserve(left.size());
        for (const int p : left) numbers.push_back(numbers_[static_cast<std::size_t>(p)]);
        for (const int p : numbers_) {
            if (std::find(numbers.begin(), numbers.end(), p) == numbers.end()) lost_.push_back(p);
        }
        numbers_ = std::move(numbers);
    }
    /// The stored communicators; empty if there was no loss.
    [[nodiscard]] std::vector<void*> take_communicators() { return std::exchange(communicators_, {}); }
    /// The path of the survivors' heartbeat file.
    [[nodiscard]] std::string heartbeats() const {
        return text("/dev/shm/cupola-nccl-", getuid(), '-', std::hash<std::string>()(options_.name), '-', count());
    }

private:
    using Socket = impl::Socket;
    struct Hello {
        std::int32_t number = 0, count = 0;
        std::int64_t step = -1;
    };
    struct Decision {
        std::int64_t step = -1;
        std::int32_t count = 0;
        std::array<std::int32_t, max_processes> numbers{};
    };
    struct Request {
        Socket socket;
        int number = -1;
        std::int64_t step = -1;
    };

    /// The address of a process's socket. It is in the abstract namespace: it disappears with the process, however that
    /// ends.
    [[nodiscard]] sockaddr_un address_of(int started_as, socklen_t& size) const {
        sockaddr_un at{};
        at.sun_family = AF_UNIX;
        const std::string name = text("cupola-", getuid(), '-', options_.name, '-', started_as);
        name.copy(at.sun_path + 1, sizeof at.sun_path - 2);
        size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        return at;
    }
    /// Connects to a process. Sets `exists` to false if it no longer exists.
    [[nodiscard]] Socket connected(int started_as, bool& exists) const {
        Socket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        socklen_t size = 0;
        const sockaddr_un at = address_of(started_as, size);
        const bool good = connect(made.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0;
        exists = good || errno != ECONNREFUSED;
        return good ? std::move(made) : Socket();
    }
    void end_communicators() {
        if (const std::vector<void*> made = take_communicators(); !made.empty()) end_(made);
    }
    /// Makes the state after `step` steps the one to continue from. Returns `left`, or an empty list and `why` if that
    /// state was not kept.
    [[nodiscard]] std::vector<int> roll_back_to(std::int64_t step, std::vector<int> left, std::string& why) {
        if (step < 0) {
            kept_ = {};
        } else if (kept_[0] && kept_[0]->step == step) {
            kept_[1] = std::move(kept_[0]);
        } else if (!kept_[1] || kept_[1]->step != step) {
            why = text("this process has not kept the state after step ", step, ", from which the others go on");
            return {};
        }
        kept_[0].reset();
        return left;
    }
    /// Accepts connections and reads the requests of other processes; those sent before the last loss are dropped.
    void accept_requests() {
        for (;;) {
            Socket socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (socket.get() < 0) break;
            requests_.push_back({std::move(socket)});
        }
        std::erase_if(requests_, [this](Request& each) {
            Hello hello;
            const ssize_t got = recv(each.socket.get(), &hello, sizeof hello, 0);
            if (got < 0) return errno != EAGAIN && errno != EINTR;
            if (got != sizeof hello || hello.count != count()) return true;
            each.number = hello.number;
            each.step = hello.step;
            return false;
        });
    }

    NcclEnvironmentOptions options_;
    Socket listener_;
    /// The surviving and the lost processes, by their numbers at the start.
    std::vector<int> numbers_, lost_;
    std::array<std::optional<TrainingState>, 2> kept_{};
    std::vector<void*> communicators_;
    std::function<void(const std::vector<void*>&)> end_;
    /// Guards requests_; held while a thread accepts requests.
    std::mutex requests_mutex_;
    std::vector<Request> requests_;
};

inline bool NcclEnvironment::agreement_requested() {
    const std::unique_lock lock(requests_mutex_, std::try_to_lock);
    if (!lock) return false;
    accept_requests();
    return std::any_of(requests_.begin(), requests_.end(), [](const Request& each) { return each.number >= 0; });
}

inline std::vector<int> NcclEnvironment::agree(double seconds, const std::function<void()>& on_wait, std::string& why) {
    const std::lock_guard lock(requests_mutex_);
    const double deadline = monotonic_seconds() + seconds;
    const int mine = number();
    const std::int64_t step = kept_[1] ? kept_[1]->step : -1;
    const Hello hello{.number = mine, .count = count(), .step = step};
    // The request also reaches the processes that wait in a sum, which then call agree() too. The first survivor
    // decides and answers the others.
    std::vector<Socket> called(static_cast<std::size_t>(count()));
    const auto call = [&](int p) {
        bool exists = true;
        Socket made = connected(numbers_[static_cast<std::size_t>(p)], exists);
        const bool said = made.get() >= 0 && send(made.get(), &hello, sizeof hello, MSG_NOSIGNAL) > 0;
        called[static_cast<std::size_t>(p)] = said ? std::move(made) : Socket();
        return said;
    };
    for (int p = 0; p < count(); ++p) {
        if (p != mine) (void)call(p);
    }
    for (; monotonic_seconds() < deadline; on_wait()) {
        std::vector<int> there;
        for (int p = 0; p < count(); ++p) {
            bool exists = true;
            if (p != mine) (void)connected(numbers_[static_cast<std::size_t>(p)], exists);
            if (exists) there.push_back(p);
        }
        if (static_cast<int>(there.size()) < count() &&
            !impl::may_go_on(static_cast<int>(there.size()), count(), there.front() == 0)) {
            why = text("of ", count(), " processes ", there.size(),
                       " are left: only more than half of them, or half with the first, go on");
            return {};
        }
        const pollfd pause{listener_.get(), POLLIN, 0};
        if (there.front() != mine) {
            Socket& first = called[static_cast<std::size_t>(there.front())];
            const bool asked = first.get() >= 0 || call(there.front());
            pollfd readable{first.get(), POLLIN, 0};
            if (!asked || poll(&readable, 1, 20) <= 0) {
                if (!asked) poll(nullptr, 0, 5);
                continue;
            }
            Decision decision;
            if (recv(first.get(), &decision, sizeof decision, 0) != sizeof decision) {
                first = Socket();  // it has ended, or continues without this process
                continue;
            }
            return roll_back_to(decision.step, {decision.numbers.begin(), decision.numbers.begin() + decision.count},
                                why);
        }
        accept_requests();
        Decision decision{.step = step, .count = 0, .numbers = {}};
        bool all = true;
        for (const int p : there) {
            decision.numbers[static_cast<std::size_t>(decision.count++)] = p;
            if (p == mine) continue;
            const auto found =
                std::find_if(requests_.begin(), requests_.end(), [&](const Request& each) { return each.number == p; });
            all = all && found != requests_.end();
            if (found != requests_.end()) decision.step = std::min(decision.step, found->step);
        }
        if (!all) {
            pollfd waits = pause;
            poll(&waits, 1, 5);
            continue;
        }
        if (decision.count == count()) {
            why = "no process is lost";
            return {};  // the others see the connection close
        }
        for (const Request& each : requests_) {
            if (each.number >= 0) (void)!send(each.socket.get(), &decision, sizeof decision, MSG_NOSIGNAL);
        }
        return roll_back_to(decision.step, {decision.numbers.begin(), decision.numbers.begin() + decision.count}, why);
    }
    why = text("a process that still exists has not answered within ", seconds, " s");
    return {};
}

}}  // namespace cupola::CUPOLA_ABI
