// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous training in several processes, which are threads here: the bits of one process, errors and what is
// refused. tests/mpi/kinds.cpp has real processes.
#include <cupola/processes/shared_centre.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <cupola/parallel/inspection.hpp>
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/kinds/backup.hpp>
#include <cupola/parallel/kinds/hogwild.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/train/impl/run_description.hpp>

#include "../test.hpp"
#include "process_trainings.hpp"
#include "thread_processes.hpp"

using namespace cupola;
using processes::append;

namespace {

template <class Policy>
using Shared = SharedCentre<Policy, ThreadConcatMean>;
/// Those of one process and of several: each training here is of this type.
using Several = OneOf<ConcatMean, Asynchronous<Elastic>, Asynchronous<Downpour>, Hogwild, Backup, ThreadConcatMean,
                      Periodic<ThreadSum>, Shared<Asynchronous<Elastic>>, Shared<Asynchronous<Downpour>>,
                      Shared<Hogwild>, Shared<Backup>>;
using Alone = Several;
static_assert(JoinsProcesses<Several> && !SpansProcesses<Several> && !ChoosesPolicy<Several>);

consteval bool says(const CompileTimeMessage& message, std::string_view expected) {
    return std::string_view(message.characters, message.size) == expected;
}
static_assert(
    says(SharedCentre<ConcatMean, ThreadConcatMean>::diagnostic<Host>(),
         "SharedCentre needs an asynchronous policy, such as Asynchronous<Downpour>, and ConcatMean is none"));
static_assert(says(SharedCentre<Hogwild, ConcatMean>::diagnostic<Host>(),
                   "SharedCentre needs a policy that spans processes, such as MpiConcatMean, and ConcatMean is none"));

constexpr int steps = 9;
constexpr std::int64_t in_flight = 3;
using Bytes = std::vector<std::byte>;

template <class Averaging>
auto training_of(const Averaging& averaging, int devices = 1, int accumulation = 1) {
    using Training = processes::Training<Averaging, Pooled>;
    return std::make_unique<Training>(
        processes::options_of({.accumulation = accumulation, .devices = devices}, averaging, Pooled{}));
}

/// The reports, with the replica and the staleness of each batch.
template <class Training>
void read(Training& training, Bytes& trace, std::int64_t max_in_flight = in_flight - 1) {
    while (const StepReport* const report = training.poll_report(max_in_flight)) {
        append(trace, *report);
        for (const ReplicaReport& each : report->replicas) {
            const std::int64_t numbers[] = {each.replica, each.staleness};
            append(trace, std::span<const std::int64_t>(numbers));
        }
    }
}

template <class Training, class Batches>
void go(Training& training, const Batches& batches, int to, Bytes& trace) {
    while (training.step() < to) {
        training.queue(batches);
        read(training, trace);
    }
    read(training, trace, 0);
}

void append_state(Bytes& trace, const TrainingState& state) {
    append(trace, std::span<const float>(state.parameters));
    append(trace, std::span<const float>(state.buffers));
    append(trace, std::span<const float>(state.averages));
    append(trace, std::span<const std::int64_t>(state.samples_since));
    for (const ReplicaState& each : state.replicas) {
        append(trace, std::span<const float>(each.parameters));
        for (const OptimizerState& arena : each.optimizer) append(trace, std::span<const float>(arena.values));
    }
}

/// All that a training reports, the state between two steps, and the last.
template <class Training>
Bytes trace_of(Training& training) {
    const processes::Batches batches{{}};
    Bytes trace;
    go(training, batches, 5, trace);
    append_state(trace, training.state());
    go(training, batches, steps, trace);
    append_state(trace, training.state());
    return trace;
}

template <class Policy>
Several shared(const Policy& policy, Hub& hub, int number) {
    return Shared<Policy>{.policy = policy, .processes = {.hub = &hub, .number = number}};
}

void check_nothing_thrown(const std::vector<std::string>& errors) {
    for (const std::string& each : errors) CHECK(each == "");
}

/// The traces of all processes; `policy_of(number)` is the policy of one.
template <class PolicyOf>
std::vector<Bytes> traces_of(int count, int devices, int accumulation, PolicyOf&& policy_of) {
    Hub hub(count, true);
    std::vector<Bytes> traces(static_cast<std::size_t>(count));
    check_nothing_thrown(on_threads(count, [&](int number) {
        const auto training = training_of(shared(policy_of(number), hub, number), devices, accumulation);
        traces[static_cast<std::size_t>(number)] = trace_of(*training);
    }));
    return traces;
}

/// Two processes with a training each.
template <class Policy, class Run>
std::vector<std::string> in_two(const Policy& policy, Run&& run) {
    Hub hub(2, true);
    return on_threads(2, [&](int number) {
        const auto training = training_of(shared(policy, hub, number));
        run(*training, number);
    });
}

Asynchronous<Downpour> downpour(const Order& order, std::shared_ptr<OrderLog> log = nullptr) {
    return {.rule = {.every = 2}, .ahead = in_flight, .order = order, .log = std::move(log)};
}

}  // namespace

TEST_CASE("one of several policies, by several carriers, is that policy: in one process or in several") {
    const auto trace_by = [](const auto& averaging) {
        const auto training = training_of(averaging);
        return std::pair(trace_of(*training), training->process().count);
    };
    const auto in_both = [&](const auto& averaging_of) {
        Hub hub(2, true);
        std::vector<std::pair<Bytes, int>> found(2);
        check_nothing_thrown(on_threads(
            2, [&](int number) { found[static_cast<std::size_t>(number)] = trace_by(averaging_of(hub, number)); }));
        for (const auto& each : found) CHECK(each.second == 2);
        CHECK(found[0].first == found[1].first);
        return found[0].first;
    };
    const auto [mean, count] = trace_by(Alone(ConcatMean{}));
    CHECK(count == 1);
    CHECK(in_both([](Hub& hub, int number) { return Several(ThreadConcatMean{.hub = &hub, .number = number}); }) ==
          mean);
    const auto local = [](Hub& hub, int number) {
        return Periodic<ThreadSum>{.every = 3, .averaging = {.hub = &hub, .number = number}};
    };
    CHECK(in_both([&](Hub& hub, int number) { return Several(local(hub, number)); }) == in_both(local));

    Hub hub(2, true);
    CHECK(impl::processes_add_sums(Several(local(hub, 0))));
    CHECK_FALSE(impl::processes_add_sums(Several(ThreadConcatMean{})));
    CHECK_FALSE(impl::processes_add_sums(Several(ConcatMean{})));
    // The numbers of what moves the values are compared, too.
    const auto errors = on_threads(2, [&](int number) {
        Several averaging = local(hub, number);
        Periodic<ThreadSum> other = local(hub, number);
        other.averaging.bucket_bytes = 64;
        if (number == 1) averaging = other;
        const auto training = training_of(averaging);
    });
    for (const std::string& each : errors)
        CHECK_MESSAGE(each.starts_with("process 1 has another bucket_bytes than process 0: 64, not 0"), each);
}

namespace {

struct NoProcesses {
    static constexpr std::string_view name = "NoProcesses";
    using Rows = ConcatMean;
    Rows rows{};
    [[nodiscard]] std::shared_ptr<Processes> join() const { return nullptr; }
};

}  // namespace

TEST_CASE("one of several policies that spans processes and has none is an error") {
    CHECK_THROWS_WITH_AS(static_cast<void>(OneOf<ConcatMean, NoProcesses>(NoProcesses{}).join()),
                         "NoProcesses has no processes", InvalidArgument);
    CHECK((OneOf<ConcatMean, NoProcesses>(ConcatMean{}).join() == nullptr));
}

TEST_CASE("round robin in several processes has the bits of one: reports, states and logs") {
    const auto check = [](auto policy, int count, int devices, int accumulation) {
        CAPTURE(policy.description());
        CAPTURE(count);
        policy.log = std::make_shared<OrderLog>();
        const auto alone = training_of(Alone(policy), 1, accumulation);
        const Bytes expected = trace_of(*alone);
        std::vector<std::shared_ptr<OrderLog>> logs;
        for (int p = 0; p < count; ++p) logs.push_back(std::make_shared<OrderLog>());
        const std::vector<Bytes> traces = traces_of(count, devices, accumulation, [&](int number) {
            auto own = policy;
            own.log = logs[static_cast<std::size_t>(number)];
            return own;
        });
        for (const Bytes& each : traces) CHECK(each == expected);
        for (const auto& each : logs) {
            CHECK(each->devices == count * devices);
            CHECK(each->claims == policy.log->claims);
            CHECK(each->turns == policy.log->turns);
        }
    };
    const Asynchronous<Elastic> elastic{.rule = {.every = 3}, .ahead = in_flight, .order = Order::round_robin()};
    check(elastic, 2, 1, 1);
    check(elastic, 4, 1, 1);
    check(downpour(Order::round_robin()), 2, 2, 1);
    check(downpour(Order::round_robin()), 2, 1, 2);
}

TEST_CASE("a free run of two processes is replayed by two and by one") {
    const auto check = [](const auto& free) {
        std::shared_ptr<OrderLog> logs[] = {std::make_shared<OrderLog>(), std::make_shared<OrderLog>()};
        const std::vector<Bytes> traces = traces_of(2, 1, 1, [&](int number) {
            auto policy = free;
            policy.log = logs[number];
            return policy;
        });
        CHECK(traces[0] == traces[1]);
        CHECK(*logs[0] == *logs[1]);
        CHECK_NOTHROW(require_valid(*logs[0]));
        auto replay = free;
        replay.order = Order::replay(*logs[0]);
        for (const Bytes& each : traces_of(2, 1, 1, [&](int) { return replay; })) CHECK(each == traces[0]);
        // Its reports have another device's regularization.
        const auto alone = training_of(Alone(replay), 2);
        const Bytes trace = trace_of(*alone);
        Bytes last;
        append_state(last, alone->state());
        CHECK(std::equal(last.rbegin(), last.rend(), traces[0].rbegin()));
        CHECK(trace.size() == traces[0].size());
    };
    check(Asynchronous<Elastic>{.rule = {.every = 2}, .ahead = in_flight});
    check(downpour(Order::free()));
}

TEST_CASE("a process that reads each report at once has the whole log, also if another one is ahead") {
    std::shared_ptr<OrderLog> logs[] = {std::make_shared<OrderLog>(), std::make_shared<OrderLog>()};
    std::atomic<bool> is_ahead{false};
    check_nothing_thrown(on_threads(2, [&, hub = std::make_shared<Hub>(2, true)](int number) {
        const auto training = training_of(shared(downpour(Order::free(), logs[number]), *hub, number));
        const processes::Batches good{{}};
        // Three turns of process 1, one of which is in step 1, come before those of step 0 in process 0.
        const auto batches = [&](std::int64_t step, int replica, HostContext& context) {
            if (number == 1 && step == 1 && replica == 3) is_ahead = true;
            while (number == 0 && !is_ahead) std::this_thread::yield();
            return good(step, replica, context);
        };
        Bytes trace;
        while (training->step() < steps) {
            training->queue(batches);
            read(*training, trace, number == 0 ? 0 : in_flight - 1);
        }
        CHECK(training->state().step == steps);
    }));
    CHECK(logs[0]->turns.size() == steps * 4);
    CHECK(*logs[0] == *logs[1]);
    CHECK_NOTHROW(require_valid(*logs[0]));
}

TEST_CASE("the processes of Hogwild report the same, and have one centre") {
    const std::vector<Bytes> traces = traces_of(2, 1, 1, [](int) { return Hogwild{.ahead = in_flight}; });
    CHECK(traces[0] == traces[1]);
}

TEST_CASE("one process trains as without a shared centre") {
    Hub hub(1, true);
    const auto alone = training_of(Alone(downpour(Order::round_robin())));
    const auto training = training_of(shared(downpour(Order::round_robin()), hub, 0));
    CHECK(trace_of(*training) == trace_of(*alone));
}

TEST_CASE("a batch of one process that is not finite returns all to the state of the last check") {
    // What each process has at the end, after an error in a batch of the second, or without one.
    const auto ends = [](bool fails, const Order& order) {
        std::vector<Bytes> found(2);
        std::vector<std::string> messages(2);
        const auto errors = in_two(downpour(order), [&](auto& training, int number) {
            const processes::Batches good{{}};
            processes::Batches bad{{}};
            bad.set_input(0, std::numeric_limits<float>::infinity());
            for (std::size_t i = 1; i < 64 * 8 * 8 * 3; ++i) bad.set_input(i, 1e30F);
            Bytes trace;
            const auto batches = [&](std::int64_t step, int replica, HostContext& context) {
                return fails && step == 5 && replica == 3 ? bad(step, replica, context) : good(step, replica, context);
            };
            try {
                go(training, batches, 6, trace);
            } catch (const DivergedError& error) {
                messages[static_cast<std::size_t>(number)] = error.what();
                CHECK(error.step == 5);
                CHECK(error.replica == 3);
                CHECK(training.step() == 4);
            }
            go(training, good, steps, trace);
            append_state(found[static_cast<std::size_t>(number)], training.state());
        });
        check_nothing_thrown(errors);
        for (const std::string& each : messages) CHECK(each.empty() != fails);
        if (fails) {
            CHECK(messages[0] == "process 1: " + messages[1]);
            CHECK(messages[1].starts_with("the loss of replica 3 is "));
            CHECK(messages[1].ends_with("the training has the state of step 4, the last that was checked"));
        }
        CHECK(found[0] == found[1]);
        return found[0];
    };
    CHECK(ends(true, Order::round_robin()) == ends(false, Order::round_robin()));
    ends(true, Order::free());
}

TEST_CASE("an exception of one process's batches, or of its step, is that of all") {
    const auto errors = in_two(downpour(Order::free()), [](auto& training, int number) {
        const processes::Batches good{{}};
        const auto failing = [&](std::int64_t step, int replica, HostContext& context) {
            require<DataError>(step < 6 || number == 0, "there is no batch of step ", step);
            return good(step, replica, context);
        };
        Bytes trace;
        go(training, failing, steps, trace);
    });
    CHECK(errors[0] == "process 1: there is no batch of step 6");
    CHECK(errors[1] == "there is no batch of step 6");

    // A log of process 0 alone that cannot be continued: the other one is in the step.
    Hub hub(2, true);
    const auto refused = on_threads(2, [&](int number) {
        const auto log = number == 0 ? std::make_shared<OrderLog>(OrderLog{.replicas = 3, .devices = 1}) : nullptr;
        const auto training = training_of(shared(downpour(Order::free(), log), hub, number));
        Bytes trace;
        go(*training, processes::Batches{{}}, steps, trace);
    });
    const std::string message =
        "the order log that is to be continued is of another training: it has 3 replicas on 1 devices, seed 0 and the "
        "rule , and this training has 4 on 2, seed 5 and Downpour every 2 batches";
    CHECK(refused[0] == message);
    CHECK(refused[1] == "process 0: " + message);
}

namespace {

/// The processes of a common centre, the first of which takes its time to write an error.
class SlowWriter final : public impl::AsynchronousProcesses {
public:
    struct Memory {
        alignas(64) std::byte bytes[1 << 16]{};
        std::atomic<bool> writes{false}, other_waits{false}, other_is_back{false};
        std::atomic<int> gave_up{0};
    };
    SlowWriter(Memory& memory, int number) : memory_(memory), number_(number) {}

    [[nodiscard]] std::byte* share(std::size_t bytes) override {
        require(bytes <= sizeof memory_.bytes, "the memory is too small");
        return memory_.bytes;
    }
    void wait(const ExchangeName&, FunctionRef<bool()> is_done, FunctionRef<bool(int)>) override {
        while (!is_done()) {
            if (number_ == 1) memory_.other_waits = true;
            std::this_thread::yield();
        }
    }
    void gather(const ExchangeName&, std::byte*, std::size_t) override {}
    void write_error(const std::exception_ptr&, std::byte*) const override {
        memory_.writes = true;
        while (!memory_.other_waits && !memory_.other_is_back) std::this_thread::yield();
    }
    [[nodiscard]] std::exception_ptr read_error(const std::byte*, int) const override { return nullptr; }

private:
    Memory& memory_;
    int number_;
};

}  // namespace

namespace {

/// The processes of a common centre that end a wait which takes too long, and call a function as long as one waits.
class ScriptedProcesses final : public impl::AsynchronousProcesses {
public:
    struct Memory {
        alignas(64) std::byte bytes[1 << 16]{};
    };
    using Script = std::function<void(const ExchangeName&, FunctionRef<bool(int)>)>;
    ScriptedProcesses(Memory& memory, Script script) : memory_(memory), script_(std::move(script)) {}

    [[nodiscard]] std::byte* share(std::size_t bytes) override {
        require(bytes <= sizeof memory_.bytes, "the memory is too small");
        return memory_.bytes;
    }
    void wait(const ExchangeName& name, FunctionRef<bool()> is_done, FunctionRef<bool(int)> waits_for) override {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!is_done()) {
            script_(name, waits_for);
            require<DeviceError>(std::chrono::steady_clock::now() < end, "waits for ", name.operation);
            std::this_thread::yield();
        }
    }
    void gather(const ExchangeName&, std::byte*, std::size_t) override {}
    void write_error(const std::exception_ptr&, std::byte*) const override {}
    [[nodiscard]] std::exception_ptr read_error(const std::byte*, int) const override { return nullptr; }

private:
    Memory& memory_;
    Script script_;
};

/// What each of some processes throws that have a common centre with one step in flight. `script(number, name,
/// waits_for)` is called as long as a process waits.
template <class Script, class Run>
std::vector<std::string> with_common_centre(int count, Script&& script, Run&& run) {
    const auto memory = std::make_unique<ScriptedProcesses::Memory>();
    return on_threads(count, [&](int number) {
        ScriptedProcesses processes(*memory, [&](const ExchangeName& name, FunctionRef<bool(int)> waits_for) {
            script(number, name, waits_for);
        });
        const impl::ReplicaPlacement placement(count, 1, true, count, number);
        impl::CommonCentre common(processes, placement, {.elements = 1, .all_elements = 1, .pieces = 1});
        run(common, number);
    });
}
constexpr auto nothing = [](int, const ExchangeName&, FunctionRef<bool(int)>) {};

}  // namespace

TEST_CASE("a process that waits says for which others") {
    // Process 2 is last wherever it is waited for: it goes on once both others have said what they wait for.
    std::mutex mutex;
    std::map<std::string, std::string> said[2];
    const auto script = [&](int number, const ExchangeName& name, FunctionRef<bool(int)> waits_for) {
        if (number == 2 || !waits_for) return;
        std::string list;
        for (int p = 0; p < 3; ++p) list += waits_for(p) ? text(p, " ") : "";
        const std::lock_guard lock(mutex);
        said[number][std::string(name.operation)] = list;
    };
    const auto until_both_wait = [&](const char* operation) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        for (bool do_both = false; !do_both;) {
            std::this_thread::yield();
            const std::lock_guard lock(mutex);
            do_both = said[0][operation] == "2 " && said[1][operation] == "2 ";
            require<DeviceError>(std::chrono::steady_clock::now() < end, "in ", operation, " they wait for ",
                                 said[0][operation], "and ", said[1][operation]);
        }
        const std::lock_guard lock(mutex);
        said[0].clear(), said[1].clear();
    };
    check_nothing_thrown(with_common_centre(3, script, [&](impl::CommonCentre& common, int number) {
        const bool last = number == 2;
        if (last) until_both_wait("the beginning of asynchronous steps");
        CHECK(common.begin(0, [&] { common.clear(0, 0); }));
        // For the process that has the next ticket, before it comes to the centre and while it is there.
        if (last) until_both_wait("the exchange with the centre");
        const std::int64_t ticket = last ? 0 : number + 1;
        CHECK(common.wait_for_piece(0, 0, ticket, 0, [] { return false; }));
        if (last) until_both_wait("the exchange with the centre");
        common.pass_piece(0, ticket);
        if (last) until_both_wait("the batches of the other processes");
        common.complete(0, number, {});
        CHECK(common.wait_for_step(0));
        if (last) until_both_wait("the reports of the other processes");
        common.set_reported(0);
        CHECK(common.wait_for_place(1));
        if (last) until_both_wait("the check of the parameters");
        CHECK(common.meet_to_check(1));
    }));
}

TEST_CASE("a process that waits for the reports of one that restores a state ends with an error") {
    for (const int restoring : {0, 1}) {
        const auto errors = with_common_centre(2, nothing, [&](impl::CommonCentre& common, int number) {
            CHECK(common.begin(0, [&] { common.clear(0, 0); }));
            common.complete(0, number, {});
            CHECK(common.wait_for_step(0));
            if (number == restoring) {
                CHECK_FALSE(common.meet_to_restore(1));
                return;
            }
            common.set_reported(0);
            try {
                static_cast<void>(common.wait_for_place(1));
            } catch (...) {
                common.fail(std::current_exception());
                throw;
            }
        });
        CHECK(errors[static_cast<std::size_t>(restoring)] == "");
        CHECK_MESSAGE(errors[static_cast<std::size_t>(1 - restoring)].starts_with(
                          text("process ", restoring, " restores a state before step 1, and process ", 1 - restoring,
                               " trains step 1: ")),
                      errors[static_cast<std::size_t>(1 - restoring)]);
    }
}

TEST_CASE("a process that fails while it restores a state ends that for the others at once") {
    for (const int failing : {0, 1, 2}) {
        check_nothing_thrown(with_common_centre(3, nothing, [&](impl::CommonCentre& common, int number) {
            CHECK(common.meet_to_restore(4));
            if (number == failing)
                common.fail(std::make_exception_ptr(OutOfMemory("no memory")));
            else
                CHECK_FALSE(common.restart({}));
            CHECK(common.has_failed());
            static_cast<void>(common.give_up());
            CHECK(common.meet_to_restore(4));
            CHECK(common.restart({}));
        }));
    }
}

TEST_CASE("the processes that restore a state know how many refuse it") {
    check_nothing_thrown(with_common_centre(3, nothing, [&](impl::CommonCentre& common, int number) {
        for (int refusing = 0; refusing <= 3; ++refusing) {
            CHECK(common.meet_to_restore(4, number < refusing));
            CHECK(common.refusals() == refusing);
        }
    }));
}

TEST_CASE("a process that still waits for the end of an error does not lose the second one of process 0") {
    std::atomic<bool> is_asleep{false}, is_given_up{false}, has_begun{false};
    std::atomic<int> gave_up{0};
    // Process 1 looks again once process 0 has failed twice and begins.
    const auto script = [&](int number, const ExchangeName& name, FunctionRef<bool(int)>) {
        if (name.operation != "the beginning of asynchronous steps") return;
        if (number == 0) has_begun = true;
        if (number == 0 || is_asleep.exchange(true)) return;
        while (!is_given_up || !has_begun) std::this_thread::yield();
    };
    check_nothing_thrown(with_common_centre(2, script, [&](impl::CommonCentre& common, int number) {
        const auto begin = [&] { return common.begin(0, [&] { common.clear(0, 0); }); };
        if (number == 0) common.fail(std::make_exception_ptr(DataError("first")));
        while (!common.has_failed()) std::this_thread::yield();
        static_cast<void>(common.give_up());
        ++gave_up;
        while (gave_up < 2) std::this_thread::yield();
        if (number == 0) {
            while (!is_asleep) std::this_thread::yield();
            common.fail(std::make_exception_ptr(DataError("second")));
            static_cast<void>(common.give_up());
            is_given_up = true;
            CHECK(begin());
            return;
        }
        CHECK_FALSE(begin());
        static_cast<void>(common.give_up());
        CHECK(common.given_up() == 2);
        CHECK(begin());
    }));
}

TEST_CASE("a meeting ends for all processes alike, also if one fails that is the last to come") {
    std::atomic<bool> is_waiting{false}, has_ended{false};
    const auto script = [&](int number, const ExchangeName& name, FunctionRef<bool(int)>) {
        if (number == 0 && name.operation == "the check of the parameters") is_waiting = true;
    };
    check_nothing_thrown(with_common_centre(2, script, [&](impl::CommonCentre& common, int number) {
        if (number == 0) {
            CHECK_FALSE(common.meet_to_check(4));
            has_ended = true;
            return;
        }
        while (!is_waiting) std::this_thread::yield();
        common.fail(std::make_exception_ptr(DataError("there is no batch")));
        while (!has_ended) std::this_thread::yield();
        CHECK_FALSE(common.meet_to_check(4));
    }));
}

TEST_CASE("two processes that fail at once give up their steps once") {
    const auto memory = std::make_unique<SlowWriter::Memory>();
    check_nothing_thrown(on_threads(2, [&](int number) {
        SlowWriter processes(*memory, number);
        const impl::ReplicaPlacement placement(2, 1, true, 2, number);
        impl::CommonCentre common(processes, placement, {.elements = 1, .all_elements = 1, .pieces = 1});
        while (number == 1 && !memory->writes) std::this_thread::yield();
        common.fail(std::make_exception_ptr(DataError("there is no batch")));
        memory->other_is_back = true;
        static_cast<void>(common.give_up());
        CHECK(common.given_up() == 1);
        ++memory->gave_up;
        while (memory->gave_up < 2) std::this_thread::yield();
        // Another error before all have restarted is one of all, too.
        common.fail(std::make_exception_ptr(DataError("there is no batch")));
        CHECK(common.has_failed());
        static_cast<void>(common.give_up());
        CHECK(common.given_up() == 2);
        CHECK(common.restart({}));
        CHECK_FALSE(common.has_failed());
    }));
}

TEST_CASE("a training is not healthy behind a failure of another process, until it has given up its steps") {
    std::atomic<bool> has_failed{false};
    check_nothing_thrown(in_two(downpour(Order::round_robin()), [&](auto& training, int number) {
        const processes::Batches good{{}};
        const auto batches = [&](std::int64_t step, int replica, HostContext& context) {
            require<DataError>(number == 0, "there is no batch");
            return good(step, replica, context);
        };
        training.queue(batches);
        while (number == 0 && !has_failed) std::this_thread::yield();
        if (number == 0) CHECK_FALSE(training.healthy());
        CHECK_THROWS_AS(static_cast<void>(training.poll_report(0)), DataError);
        has_failed = true;
        CHECK(training.healthy());
        CHECK(training.step() == 0);
    }));
}

TEST_CASE("one process inspects a step that the others do not") {
    for (const Order& order : {Order::free(), Order::round_robin()}) {
        std::atomic<int> inspections{0};
        check_nothing_thrown(in_two(downpour(order), [&](auto& training, int number) {
            const processes::Batches batches{{}};
            Bytes trace;
            for (int step = 0; step < steps; ++step) {
                if (number == 1 && step % 3 == 1) {
                    training.queue(batches, [&](const auto& inspection) {
                        CHECK(inspection.step() == step);
                        ++inspections;
                    });
                } else {
                    training.queue(batches);
                }
                read(training, trace);
            }
            read(training, trace, 0);
            CHECK(training.state().step == steps);
        }));
        CHECK(inspections == 3);
    }
}

TEST_CASE("a state is restored in all processes, also while steps are in flight") {
    const auto alone = training_of(Alone(downpour(Order::round_robin())));
    const processes::Batches batches{{}};
    Bytes trace, expected;
    go(*alone, batches, 4, trace);
    const TrainingState state = alone->state();
    go(*alone, batches, steps, trace);
    append_state(expected, alone->state());
    check_nothing_thrown(in_two(downpour(Order::round_robin()), [&](auto& training, int) {
        Bytes ignored, found;
        training.queue(batches);
        training.queue(batches);
        training.restore(state);
        go(training, batches, steps, ignored);
        append_state(found, training.state());
        CHECK(found == expected);
    }));
    // The state that is restored is that of the training at once, also where the centre has moved and was not read.
    check_nothing_thrown(in_two(downpour(Order::round_robin()), [&](auto& training, int) {
        Bytes ignored, found, wanted;
        training.queue(batches);
        training.queue(batches);
        read(training, ignored, 0);
        training.restore(state);
        append_state(found, training.state());
        append_state(wanted, state);
        CHECK(found == wanted);
    }));
}

namespace {

/// Calls a function at the end, also by an exception.
template <class Call>
struct AtEnd {
    Call call;
    ~AtEnd() { call(); }
};
template <class Call>
AtEnd(Call) -> AtEnd<Call>;

/// What each process says in its error, and has at the end, if process 1 inspects step 2 while the other one restores
/// `state`. Both restore it once more after an error.
struct Restored {
    std::vector<std::string> errors = std::vector<std::string>(2);
    std::vector<Bytes> ends = std::vector<Bytes>(2);
    int inspections = 0;
};
Restored restore_beside_inspection(const TrainingState& state, bool fails) {
    Restored found;
    Hub hub(2, true);
    const Asynchronous<Downpour> policy{.rule = {.every = 1}, .ahead = in_flight, .order = Order::round_robin()};
    std::atomic<bool> other_ended{false};
    check_nothing_thrown(on_threads(2, [&](int number) {
        // No check, for which all steps would be waited for.
        const Several averaging = shared(policy, hub, number);
        auto options = processes::options_of({}, averaging, Pooled{});
        options.check_every = 0;
        processes::Training<Several, Pooled> training(options);
        const AtEnd ended{[&] {
            if (number == 0) other_ended = true;
        }};
        const processes::Batches good{{}};
        // Process 0 restores while the first step of process 1, for which its second one waits, is not complete.
        const auto batches = [&](std::int64_t step, int replica, HostContext& context) {
            while (number == 1 && step == 0 && hub.waits(0, "the state of the training") < 2 && !other_ended)
                std::this_thread::yield();
            require<DataError>(!fails || number == 0 || step < 2, "there is no batch of step ", step);
            return good(step, replica, context);
        };
        const auto inspector = [&](const auto& inspection) {
            CHECK(inspection.step() == 2);
            for (const float each : inspection.parameters()) CHECK(impl::is_finite(each));
            ++found.inspections;
        };
        try {
            for (int step = 0; step < 3; ++step)
                number == 1 && step == 2 ? training.queue(batches, inspector) : training.queue(batches);
            training.restore(state);
        } catch (const DataError& error) {
            found.errors[static_cast<std::size_t>(number)] = error.what();
            training.restore(state);
        }
        Bytes ignored;
        go(training, good, steps, ignored);
        append_state(found.ends[static_cast<std::size_t>(number)], training.state());
    }));
    return found;
}

}  // namespace

TEST_CASE("one process inspects a step while the other restores a state") {
    const Asynchronous<Downpour> policy{.rule = {.every = 1}, .ahead = in_flight, .order = Order::round_robin()};
    const auto alone = training_of(Alone(policy));
    const processes::Batches batches{{}};
    Bytes trace, expected;
    go(*alone, batches, 4, trace);
    const TrainingState state = alone->state();
    go(*alone, batches, steps, trace);
    append_state(expected, alone->state());

    const Restored good = restore_beside_inspection(state, false);
    CHECK(good.inspections == 1);
    CHECK(good.errors == std::vector<std::string>(2));
    for (const Bytes& each : good.ends) CHECK(each == expected);
    // An error of the step that is inspected is one of the process that restores.
    const Restored bad = restore_beside_inspection(state, true);
    CHECK(bad.inspections == 0);
    CHECK(bad.errors[0] == "process 1: there is no batch of step 2");
    CHECK(bad.errors[1] == "there is no batch of step 2");
    for (const Bytes& each : bad.ends) CHECK(each == expected);
}

TEST_CASE("a second error, before the processes continue after the first, is one of all, and they continue") {
    const auto policy = downpour(Order::round_robin());
    const auto alone = training_of(Alone(policy));
    Bytes trace, expected;
    go(*alone, processes::Batches{{}}, steps, trace);
    append_state(expected, alone->state());

    std::vector<std::vector<std::string>> errors(2);
    std::atomic<bool> first_in_both{false}, second_in_other{false};
    Hub hub(2, true);
    check_nothing_thrown(on_threads(2, [&](int number) {
        const AtEnd ended{[&] {
            if (number == 0) first_in_both = second_in_other = true;
        }};
        // Between the two errors process 1 has no learning rate.
        bool has_rate = true;
        const Several averaging = shared(policy, hub, number);
        auto options = processes::options_of({.devices = 1}, averaging, Pooled{});
        options.optimizer.learning_rate = [&](std::int64_t) {
            return has_rate ? 0.02 : std::numeric_limits<double>::quiet_NaN();
        };
        processes::Training<Several, Pooled> training(options);
        std::vector<std::string>& mine = errors[static_cast<std::size_t>(number)];
        bool is_good = false;
        const processes::Batches good{{}};
        const auto batches = [&](std::int64_t step, int replica, HostContext& context) {
            require<DataError>(is_good || number == 0 || step < 3, "there is no batch of step ", step);
            return good(step, replica, context);
        };
        Bytes ignored;
        while (mine.size() < 2) {
            try {
                go(training, batches, steps, ignored);
                break;
            } catch (const Error& error) {
                mine.emplace_back(error.what());
                CHECK(training.step() == 2);
            }
            is_good = true;
            if (number == 0) {
                (mine.size() == 1 ? first_in_both : second_in_other) = true;
                continue;
            }
            // Process 0 waits for the next step by then, or will.
            while (mine.size() == 1 && !first_in_both) std::this_thread::yield();
            while (mine.size() == 2 && !second_in_other) std::this_thread::yield();
            has_rate = mine.size() == 2;
        }
        go(training, batches, steps, ignored);
        Bytes end;
        append_state(end, training.state());
        CHECK(end == expected);
    }));
    REQUIRE(errors[0].size() == 2);
    REQUIRE(errors[1].size() == 2);
    CHECK(errors[1][0] == "there is no batch of step 3");
    CHECK(errors[1][1].starts_with("the learning rate"));
    for (std::size_t i = 0; i < 2; ++i) CHECK(errors[0][i] == "process 1: " + errors[1][i]);
}

TEST_CASE("one process that restores a state where the other trains on is an error of both") {
    const auto alone = training_of(Alone(downpour(Order::round_robin())));
    const TrainingState state = alone->state();
    const auto errors_of = [&](const Order& order, int steps_before) {
        const auto errors = in_two(downpour(order), [&](auto& training, int number) {
            const processes::Batches batches{{}};
            for (int step = 0; step < steps_before; ++step) training.queue(batches);
            if (number == 0) training.restore(state);
            training.queue(batches);
            static_cast<void>(training.parameters());
        });
        for (const std::string& each : errors)
            CHECK_MESSAGE(each.ends_with(": all processes queue the same steps, and restore the same state after the "
                                         "same ones"),
                          each);
        return errors;
    };
    const std::string begins = "process 0 restores a state before step 0, and process 1 trains step 0: ";
    for (const std::string& each : errors_of(Order::round_robin(), 0)) CHECK_MESSAGE(each.starts_with(begins), each);
    // Process 1 waits for a batch, or for its turn.
    const std::string trains = "process 0 restores a state before step 1, and process 1 trains step 1: ";
    for (const Order& order : {Order::free(), Order::round_robin()}) {
        const auto errors = errors_of(order, 1);
        CHECK(errors[0].starts_with("process 1: " + trains));
        CHECK(errors[1].starts_with(trains));
    }
    // Process 1 waits for the reports of process 0, whose places its next step takes.
    const std::string places = "process 0 restores a state before step 3, and process 1 trains step 3: ";
    for (const Order& order : {Order::free(), Order::round_robin()}) {
        const auto errors = errors_of(order, in_flight);
        CHECK(errors[0].starts_with("process 1: " + places));
        CHECK(errors[1].starts_with(places));
    }
}

TEST_CASE("one process that restores a state where the other checks the parameters is an error of both") {
    const auto policy = downpour(Order::round_robin());
    const auto alone = training_of(Alone(policy));
    const TrainingState state = alone->state();
    Bytes ignored, expected;
    go(*alone, processes::Batches{{}}, steps, ignored);
    append_state(expected, alone->state());
    Hub hub(2, true);
    std::vector<std::string> messages(2);
    check_nothing_thrown(on_threads(2, [&](int number) {
        const Several averaging = shared(policy, hub, number);
        auto options = processes::options_of({}, averaging, Pooled{});
        options.check_every = 4;
        processes::Training<Several, Pooled> training(options);
        const processes::Batches batches{{}};
        Bytes trace, found;
        go(training, batches, 4, trace);
        try {
            if (number == 0) static_cast<void>(training.parameters());
            if (number == 1) training.restore(state);
        } catch (const InvalidArgument& error) {
            messages[static_cast<std::size_t>(number)] = error.what();
            CHECK(training.step() == 0);
        }
        go(training, batches, steps, trace);
        append_state(found, training.state());
        CHECK(found == expected);
    }));
    for (const std::string& each : messages)
        CHECK_MESSAGE(each.starts_with("process 0 checks the parameters before step 4, and process 1 restores a state "
                                       "before step 4: all processes queue the same steps"),
                      each);
}

TEST_CASE("a state that one process alone refuses is an error of all, and one that all refuse changes nothing") {
    const auto policy = downpour(Order::round_robin());
    const auto alone = training_of(Alone(policy));
    Bytes trace, expected;
    go(*alone, processes::Batches{{}}, 4, trace);
    const TrainingState good = alone->state();
    TrainingState bad = good;
    bad.parameters[0] = std::numeric_limits<float>::quiet_NaN();
    go(*alone, processes::Batches{{}}, steps, trace);
    append_state(expected, alone->state());
    for (const int refusing : {0, 1, 2}) {
        const auto refuses = [&](int number) { return number == refusing || refusing == 2; };
        std::vector<std::string> messages(2);
        check_nothing_thrown(in_two(policy, [&](auto& training, int number) {
            const processes::Batches batches{{}};
            Bytes ignored, found;
            go(training, batches, 5, ignored);
            try {
                training.restore(refuses(number) ? bad : good);
            } catch (const InvalidArgument& error) {
                messages[static_cast<std::size_t>(number)] = error.what();
            }
            // Otherwise the state of the last check.
            CHECK(training.step() == (refusing == 2 ? 5 : 4));
            go(training, batches, steps, ignored);
            append_state(found, training.state());
            CHECK(found == expected);
        }));
        const std::string of_refusing = messages[refusing == 2 ? 0 : static_cast<std::size_t>(refusing)];
        CHECK_MESSAGE(of_refusing.starts_with("a state must be finite, but its parameter conv1.weight is nan"),
                      of_refusing);
        for (int p = 0; p < 2; ++p)
            CHECK(messages[static_cast<std::size_t>(p)] ==
                  (refuses(p) ? of_refusing : text("process ", refusing, ": ", of_refusing)));
    }
}

TEST_CASE("fit evaluates and records in all processes, with batches that each prepares for its own replicas") {
    const auto run = [](auto& training) {
        std::vector<float> inputs(40 * 8 * 8 * 3), targets(40 * 2, 1.0F);
        initialize(inputs, normal(1.0), 1, 1, 3, 0);
        const InMemory data(Shape{8, 8, 3}, inputs, Shape{2}, targets);
        Prefetch batches(TrainingBatches(data, IdentityTransform{},
                                         {.batch_size = processes::batch, .replicas = processes::replicas, .seed = 5}),
                         {.workers = 1,
                          .first_replica = training.process().number * processes::replicas / training.process().count,
                          .replicas = processes::replicas / training.process().count});
        EvaluationBatches evaluation(data, IdentityTransform{}, processes::batch, 1);
        const History history = fit(training, batches, {.steps = 8, .every = 4, .validation = evaluation});
        std::vector<double> values;
        for (const HistoryRecord& each : history.records) {
            values.push_back(each.loss);
            values.push_back(*each.validation_loss);
        }
        return values;
    };
    const auto alone = training_of(Alone(downpour(Order::round_robin())));
    const std::vector<double> expected = run(*alone);
    CHECK(expected.size() == 4);
    check_nothing_thrown(
        in_two(downpour(Order::round_robin()), [&](auto& training, int) { CHECK(run(training) == expected); }));
}

TEST_CASE("the report of the memory of process 0 has that which all share") {
    Hub hub(2, true);
    std::vector<MemoryReport> memory(2);
    check_nothing_thrown(on_threads(2, [&](int number) {
        const auto training = training_of(shared(downpour(Order::free()), hub, number));
        memory[static_cast<std::size_t>(number)] = training->memory();
    }));
    CHECK(memory[0].shared == hub.shared_bytes(0));
    CHECK(memory[0].shared > memory[0].centre + memory[0].moving_average);
    CHECK(memory[1].shared == 0);
    CHECK(memory[0].total() == memory[1].total() + memory[0].shared);
    CHECK(to_string(memory[0]).find(text(" + ", ByteCount{memory[0].shared}, " the centre of all processes + ")) !=
          std::string::npos);
    CHECK(to_string(memory[1]).find("processes") == std::string::npos);
}

TEST_CASE("processes that cannot share a centre, and logs that they cannot replay, are errors") {
    const auto errors_of = [](bool shares, const auto& policy_of) {
        Hub hub(2, shares);
        return on_threads(
            2, [&](int number) { const auto training = training_of(shared(policy_of(number), hub, number)); });
    };
    const auto all_say = [](const std::vector<std::string>& errors, const std::string& expected) {
        for (const std::string& each : errors) CHECK(each == expected);
    };
    const auto apart = errors_of(false, [](int) { return downpour(Order::free()); });
    for (int p = 0; p < 2; ++p)
        CHECK(apart[static_cast<std::size_t>(p)] ==
              text("Asynchronous exchanges with a centre in memory that all processes share, and of 2 processes 1 can "
                   "share memory with process ",
                   p, ", those of its machine: between machines use Periodic or ElasticAveraging"));
    all_say(errors_of(true, [](int) { return Backup{.count = 3}; }),
            "Backup trains in one process, and this training has 2: use Periodic or ElasticAveraging");

    OrderLog log{.replicas = 4,
                 .devices = 2,
                 .seed = 5,
                 .rule = Downpour{.every = 2}.description(),
                 .claims = {0, 1, 2, 3},
                 .turns = {0, 1, 2, 3}};
    OrderLog crossed = log;
    crossed.claims = {0, 2, 1, 3};
    all_say(errors_of(true, [&](int) { return downpour(Order::replay(crossed)); }),
            "in the order log replica 2 computes batch 1 of step 0, which is prepared in process 0 of 2, and the "
            "replica is in process 1: replay it in one process");
    OrderLog other = log;
    other.turns = {2, 0, 1, 3};
    const auto different =
        errors_of(true, [&](int number) { return downpour(Order::replay(number == 0 ? log : other)); });
    for (const std::string& each : different)
        CHECK_MESSAGE(each.starts_with("process 1 has another order log than process 0: "), each);
    // One that process 1 alone would refuse, while process 0 waits for it.
    other = log;
    other.seed = 6;
    for (const std::string& each :
         errors_of(true, [&](int number) { return downpour(Order::replay(number == 0 ? log : other)); }))
        CHECK_MESSAGE(each.starts_with("process 1 has another order log than process 0: "), each);
    const auto numbers = errors_of(true, [](int number) {
        Asynchronous<Downpour> policy = downpour(Order::free());
        policy.ahead += number;
        return policy;
    });
    all_say(numbers,
            "process 1 has another averaging's settings than process 0: Asynchronous Downpour every 2 batches, in free "
            "order, at most 4 steps ahead, not Asynchronous Downpour every 2 batches, in free order, at most 3 steps "
            "ahead");
}
