// SPDX-License-Identifier: Apache-2.0
//
// Usage: mpirun -n P mpi_trainings equal | compressed | sum | replicas | seed | deadline | unopened | larger |
//        folder FOLDER | kill FOLDER | hang FOLDER | hang-sum FOLDER | silent FOLDER | error FOLDER |
//        kill-part FOLDER | hang-part FOLDER | error-part FOLDER
//
// Trainings of four replicas by MPI: equal to one process, wrong in several ways, and with a process that fails. tests/mpi/run
// starts it.
//
// Covers: cupola/mpi.hpp, cupola/processes/mpi.hpp
#include <cupola/mpi.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <thread>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/models/resnet.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/synchronized.hpp>

#include "../labelled_samples.hpp"
#include "../reference/compare.hpp"
#include "../standard.hpp"

namespace {

using namespace cupola;

constexpr int replicas = 4, steps = 4;
constexpr std::int64_t batch_size = 4;

/// The kinds of layer of the tutorial's network, and dropout.
struct Tutorial
    : Sequential<Input<32, 32, 3>, Named<"conv1", Conv2d<8, 5, stride(2)>>, ReLU, MaxPool2d<3, 2>, LocalResponseNorm<2>,
                 Flatten, Dropout<0.5>, Named<"local3", Linear<24>>, ReLU, Named<"softmax_linear", Linear<10>>> {};
struct SmallResNet : ResNet<8> {};

struct AnyStatistics {
    static constexpr std::string_view name = "any";
    static constexpr bool synchronized = false;
    void (*take)(const StatisticsUpdate&) = [](const StatisticsUpdate& u) { FirstReplica{}.update(u); };
    void update(const StatisticsUpdate& u) const { take(u); }
};

struct Case {
    bool unequal = false;
    int accumulation = 1, devices = 1;
};

template <class Net>
constexpr std::int64_t classes = Net::output_shape.size();

template <class Net>
class Batches : LabelledSamples {
public:
    explicit Batches(const Case& c) : LabelledSamples(40, Net::input_shape, 10), case_(c) {}
    BatchView operator()(std::int64_t place, int replica, HostContext&) const {
        constexpr std::int64_t sizes[] = {batch_size, 2, 0, batch_size, 3};
        const std::int64_t size = case_.unequal ? sizes[static_cast<std::size_t>(3 * place + replica) % 5] : batch_size;
        return size == 0 ? BatchView{} : view((5 * place + 3 * replica) % (40 - batch_size), size);
    }

private:
    Case case_;
};

template <class Net, class Averaging, class Statistics>
using Training = DataParallel<Net, CrossEntropy<static_cast<int>(classes<Net>)>, Sgd, Averaging, Host, Statistics>;

template <class Net, class Averaging, class Statistics>
auto options_of(const Case& c, const Averaging& averaging, const Statistics& statistics) {
    return typename Training<Net, Averaging, Statistics>::Options{.replicas = replicas,
                                                                  .devices = c.devices,
                                                                  .batch_size = batch_size,
                                                                  .other_batch_sizes = {2, 3},
                                                                  .gradient_accumulation_steps = c.accumulation,
                                                                  .seed = 5,
                                                                  .optimizer = {.learning_rate = 0.01, .momentum = 0.9},
                                                                  .averaging = averaging,
                                                                  .statistics = statistics,
                                                                  .check_every = 2};
}

/// The losses of each step and replica, and the state after the last step.
template <class T, class B>
std::vector<float> trace_of(T& training, const B& batches, int count = steps) {
    std::vector<float> trace;
    for (int s = 0; s < count; ++s) {
        const StepReport& report = training.step(batches);
        trace.push_back(static_cast<float>(report.loss));
        for (const ReplicaReport& each : report.replicas) trace.push_back(static_cast<float>(each.total));
    }
    const TrainingState state = training.state();
    trace.insert(trace.end(), state.parameters.begin(), state.parameters.end());
    trace.insert(trace.end(), state.buffers.begin(), state.buffers.end());
    return trace;
}

/// Whether the process has the trace of process 0; it prints that it has not.
bool same_as_first(const char* name, const MpiEnvironment& mpi, const std::vector<float>& trace) {
    std::vector<float> of_first = trace;
    MPI_Bcast(of_first.data(), static_cast<int>(of_first.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
    const bool same = reference::same_bits(trace, of_first);
    if (!same) std::printf("%s: process %d differs from process 0\n", name, mpi.number());
    return same;
}

double largest_difference(const std::vector<float>& found, const std::vector<float>& expected) {
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
        largest = std::max(largest, static_cast<double>(std::abs(found[i] - expected[i])));
    return largest;
}

/// Returns the number of processes and cases whose trace is not the one of a single process.
template <class Net, class Statistics>
int unequal_traces(const char* name, const MpiEnvironment& mpi, const Case& c, const Statistics& statistics) {
    Case alone = c;
    alone.devices = 1;
    int errors = 0;
    std::vector<float> expected;
    if (mpi.number() == 0) {
        Training<Net, ConcatMean, Statistics> training(options_of<Net>(alone, ConcatMean{}, statistics));
        expected = trace_of(training, Batches<Net>(c));
    }
    for (const bool shares : {true, false}) {
        const MpiConcatMean averaging{.deadline_seconds = 300, .shares_memory = shares};
        Training<Net, MpiConcatMean, Statistics> training(options_of<Net>(c, averaging, statistics));
        const std::vector<float> trace = trace_of(training, Batches<Net>(c));
        if (mpi.number() == 0 && !reference::same_bits(trace, expected)) {
            std::printf("%s: %d processes differ from one, shared memory %d\n", name, mpi.count(), shares);
            ++errors;
        }
        errors += same_as_first(name, mpi, trace) ? 0 : 1;
    }
    return errors;
}

int equal(const MpiEnvironment& mpi) {
    int errors = 0;
    errors += unequal_traces<Tutorial>("tutorial", mpi, {.unequal = true, .accumulation = 2}, FirstReplica{});
    if (mpi.count() < 4)
        errors += unequal_traces<Tutorial>("tutorial, two devices", mpi, {.devices = 2}, FirstReplica{});
    const auto any = [&]<class Policy>(const Policy& policy, const Case& c) {
        errors += unequal_traces<SmallResNet>(Policy::name.data(), mpi, c,
                                              AnyStatistics{[](const StatisticsUpdate& u) { Policy{}.update(u); }});
        static_cast<void>(policy);
    };
    any(FirstReplica{}, {.unequal = true});
    any(LastReplica{}, {});
    any(AllReplicas{}, {.accumulation = 2});
    any(Pooled{}, {.unequal = true, .accumulation = 2});
    errors += unequal_traces<SmallResNet>("synchronized", mpi, {.unequal = true}, Synchronized{});
    return errors;
}

/// Compressed: by rows, the bits of one process; by sums, equal on all processes, and to a few roundings the same as one process.
int compressed(const MpiEnvironment& mpi) {
    int errors = 0;
    const auto check = [&](const Case& c) {
        std::vector<float> expected;
        if (mpi.number() == 0) {
            Training<Tutorial, Compressed<ConcatMean>, FirstReplica> training(options_of<Tutorial>(
                {.unequal = c.unequal, .accumulation = c.accumulation}, Compressed<ConcatMean>{}, FirstReplica{}));
            expected = trace_of(training, Batches<Tutorial>(c));
        }
        const auto trace = [&](const auto& averaging) {
            using Averaging = std::remove_cvref_t<decltype(averaging)>;
            Training<Tutorial, Averaging, FirstReplica> training(options_of<Tutorial>(c, averaging, FirstReplica{}));
            const std::vector<float> mine = trace_of(training, Batches<Tutorial>(c));
            errors += same_as_first("compressed", mpi, mine) ? 0 : 1;
            return mine;
        };
        for (const bool shares : {true, false}) {
            const std::vector<float> found =
                trace(Compressed<MpiConcatMean>{.policy = {.deadline_seconds = 300, .shares_memory = shares}});
            if (mpi.number() != 0 || reference::same_bits(found, expected)) continue;
            std::printf("compressed: %d processes differ from one, shared memory %d\n", mpi.count(), shares);
            ++errors;
        }
        const std::vector<float> sums = trace(Compressed<MpiAllReduce>{.policy = {.deadline_seconds = 300}});
        if (mpi.number() != 0) return;
        const double largest = largest_difference(sums, expected);
        if (!(largest < 2e-3)) std::printf("the compressed sum differs from the mean by up to %g\n", largest);
        errors += largest < 2e-3 ? 0 : 1;
    };
    check({.unequal = true, .accumulation = 2});
    if (mpi.count() < 4) check({.devices = 2});
    return errors;
}

/// MpiAllReduce agrees with one process to rounding, and has the same bits on all processes and in a second run.
template <class Net, class Statistics>
int unequal_sums(const MpiEnvironment& mpi, const Case& c, std::int64_t bucket_bytes, const Statistics& statistics) {
    const auto trace_of_sum = [&](int count = steps) {
        const MpiAllReduce averaging{.deadline_seconds = 300, .bucket_bytes = bucket_bytes};
        Training<Net, MpiAllReduce, Statistics> training(options_of<Net>(c, averaging, statistics));
        return trace_of(training, Batches<Net>(c), count);
    };
    const std::vector<float> trace = trace_of_sum(), first_step = trace_of_sum(1);
    int errors = 0;
    if (!same_as_first("sum", mpi, trace)) ++errors;
    if (trace_of_sum() != trace) {
        std::printf("the sums of process %d differ in a second run\n", mpi.number());
        ++errors;
    }
    if (mpi.number() != 0) return errors;
    Case one_device = c;
    one_device.devices = 1;
    // After the first step a rounding may change the sign of a ReLU's input, and so all of its gradient.
    const auto compare = [&](const std::vector<float>& found, int count, double limit) {
        Training<Net, ConcatMean, Statistics> alone(options_of<Net>(one_device, ConcatMean{}, statistics));
        const double largest = largest_difference(found, trace_of(alone, Batches<Net>(c), count));
        if (largest < limit) return;
        std::printf("the sum differs from the mean by up to %g after %d steps\n", largest, count);
        ++errors;
    };
    compare(first_step, 1, 1e-5);
    compare(trace, steps, 1e-3);
    return errors;
}

std::atomic<int> posted_sums = 0;

/// The identity; where `waits`, its backward pass waits until a sum has begun, at most ten seconds.
struct WaitsForSum {
    static inline bool waits = false, saw = false;
    struct Operation {
        std::int64_t count;
        void forward(const ForwardArgs<Host>& args) const { std::copy_n(args.input, count, args.output); }
        void backward(const BackwardArgs<Host>& args) const {
            for (int i = 0; waits && i < 10000 && posted_sums == 0; ++i) usleep(1000);
            if (waits) saw = posted_sums > 0;
            std::copy_n(args.output_gradient, count, args.input_gradient);
        }
    };
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static Operation operation(const BuildContext<Host>& build) { return {build.batch * build.output.size()}; }
};
struct Waiting : Sequential<Input<32, 32, 3>, Conv2d<8, 5, stride(4)>, WaitsForSum, ReLU, Flatten, Linear<10>> {};

/// The first sum is with MPI while the backward pass is not at its end.
int sum_in_backward(const MpiEnvironment& mpi) {
    const Case c;
    const MpiAllReduce averaging{.deadline_seconds = 300, .bucket_bytes = 4096};
    Training<Waiting, MpiAllReduce, FirstReplica> training(options_of<Waiting>(c, averaging, FirstReplica{}));
    posted_sums = 0;
    const Batches<Waiting> batches(c);
    const int last = (mpi.number() + 1) * replicas / mpi.count() - 1;
    training.step([&](std::int64_t place, int replica, HostContext& context) {
        WaitsForSum::waits = replica == last;  // its gradients complete the buckets
        return batches(place, replica, context);
    });
    if (!WaitsForSum::saw || posted_sums != 2)
        std::printf("%d sums were posted, the first %s\n", posted_sums.load(),
                    WaitsForSum::saw ? "in time" : "after the backward pass");
    return WaitsForSum::saw && posted_sums == 2 ? 0 : 1;
}

/// The order of two threads in which a sum could be posted twice: the thread that polls MPI has decided to look at the sums, and the
/// one that waits for them takes the lock before it. The functions of the system and of MPI below bring it about.
struct Order {
    std::thread::id waits{};
    std::atomic<bool> on = false, has_decided = false, looks = false;
    /// Whether this thread polls, and the mutexes that it has locked since its last sleep: the second is that of a look.
    static inline thread_local bool polls = false;
    static inline thread_local int locks = 0;
    [[nodiscard]] bool is_waiting_thread() const { return std::this_thread::get_id() == waits; }
};
Order order;

int sums_posted_once(const MpiEnvironment& mpi) {
    constexpr int rounds = 3, parts = 3;
    if (mpi.count() == 1) return 0;
    const auto made = impl::make_mpi_processes(300, {}, false, nullptr, true);
    Processes& processes = *made;
    std::vector<float> values(100 * parts);
    posted_sums = 0;
    int wrong = 0;
    order.waits = std::this_thread::get_id();
    for (int round = 1; round <= rounds; ++round) {
        std::ranges::fill(values, static_cast<float>(round));
        order.has_decided = order.looks = false;
        order.on = true;
        for (std::size_t part = 0; part < parts; ++part)
            processes.begin_sum({"the sum of the gradients", round}, std::span(values).subspan(100 * part, 100));
        while (!order.has_decided) usleep(1000);
        processes.finish_sums();
        order.on = false;
        for (const float each : values) wrong += each == static_cast<float>(round * mpi.count()) ? 0 : 1;
    }
    if (posted_sums != rounds * parts || wrong > 0)
        std::printf("process %d has posted %d sums, not %d; %d values are wrong\n", mpi.number(), posted_sums.load(),
                    rounds * parts, wrong);
    return posted_sums == rounds * parts && wrong == 0 ? 0 : 1;
}

int sum(const MpiEnvironment& mpi) {
    int errors = 0;
    for (const std::int64_t bytes : {0, 4096, 1 << 20})
        errors += unequal_sums<Tutorial>(mpi, {.unequal = true}, bytes, FirstReplica{});
    errors += unequal_sums<Tutorial>(mpi, {.unequal = true, .accumulation = 2}, 4096, FirstReplica{});
    if (mpi.count() < 4) errors += unequal_sums<Tutorial>(mpi, {.devices = 2}, 4096, FirstReplica{});
    errors += unequal_sums<SmallResNet>(mpi, {.unequal = true}, 4096, Synchronized{});
    return errors + sum_in_backward(mpi) + sums_posted_once(mpi);
}

/// A training in which process 1 calls `fail` before step 2.
template <class Averaging = MpiConcatMean, class Fail>
int failing(const MpiEnvironment& mpi, const std::string& folder, Fail&& fail, std::uint64_t seed = 5,
            double deadline = 1) {
    const Averaging averaging{.deadline_seconds = deadline, .folder = folder};
    auto options = options_of<Tutorial>({}, averaging, FirstReplica{});
    options.seed = seed;
    Training<Tutorial, Averaging, FirstReplica> training(options);
    const Batches<Tutorial> batches({});
    for (std::int64_t step = 0; step < 1000; ++step) {
        if (step == 2 && mpi.number() == 1) fail();
        training.step(batches);
    }
    return 0;
}

/// Copies its input; in the forward pass after `calls_left` others it calls `fail`, on process 1.
std::atomic<int> calls_left = -1;
std::atomic<void (*)()> fail_in_part;
struct FaultOnHost {
    std::int64_t elements;
    void forward(const ForwardArgs<Host>& args) const {
        if (calls_left-- == 0) fail_in_part.load()();
        std::copy_n(args.input, elements, args.output);
    }
    void backward(const BackwardArgs<Host>& args) const {
        std::copy_n(args.output_gradient, elements, args.input_gradient);
    }
};
struct FaultInPart {
    static constexpr LayerTraits traits{};
    static constexpr ShapeResult output(const Shape& input) { return input; }
    static FaultOnHost operation(const BuildContext<Host>& build) { return {build.batch * build.input.size()}; }
};
struct WholeNet : Sequential<Input<8, 8, 1>, Flatten, Named<"first", Linear<12>>, Sigmoid, Named<"second", Linear<12>>,
                             FaultInPart, Sigmoid, Named<"third", Linear<10>>> {};
struct InThreeParts : SplitAt<WholeNet, "second", "third"> {};

/// A training of a network in three parts per process. In the second part of process 1, in step 2, `fail` is called.
int failing_in_part(const MpiEnvironment& mpi, const std::string& folder, void (*fail)()) {
    auto options = options_of<InThreeParts>({.accumulation = 2, .devices = 3},
                                            MpiConcatMean{.deadline_seconds = 1, .folder = folder}, FirstReplica{});
    Training<InThreeParts, MpiConcatMean, FirstReplica> training(options);
    const Batches<InThreeParts> batches({});
    const int batches_of_step = replicas / mpi.count() * 2;
    fail_in_part = fail;
    if (mpi.number() == 1) calls_left = 2 * batches_of_step + 1;
    for (std::int64_t step = 0; step < 1000; ++step) training.step(batches);
    return 0;
}

/// Waits until the launcher ends the process.
void hang() {
    std::signal(SIGTERM, SIG_DFL);
    for (;;) pause();
}

/// A sum to which process 2 does not come, and in which process 1 is stopped.
int silent(const std::string& folder, const MpiEnvironment& mpi) {
    const auto made = impl::make_mpi_processes(2, folder, false, nullptr);
    Processes& processes = *made;
    if (mpi.number() == 2) hang();
    std::thread stops([&] {
        if (mpi.number() != 1) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        std::raise(SIGSTOP);
    });
    std::vector<float> values(1000);
    processes.sum({"the sum of the gradients", 7}, values);
    stops.join();
    return 1;
}

/// Process 1 cannot open the memory of the others: it may have one more file, its own memory.
int unopened(const MpiEnvironment& mpi) {
    const auto made = impl::make_mpi_processes(60, {}, true, nullptr);
    Processes& processes = *made;
    if (mpi.number() == 1) {
        const int next = dup(STDERR_FILENO);
        close(next);
        rlimit files{};
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = static_cast<rlim_t>(next) + 1;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return processes.share(1000).empty() ? 1 : 0;
}

/// A message that is larger than process 1 expects.
int larger_message(const MpiEnvironment& mpi) {
    const auto made = impl::make_mpi_processes(60, {}, true, nullptr);
    Processes& processes = *made;
    std::vector<std::byte> bytes(mpi.number() == 0 ? 8 : 4);
    const ProcessMessage message{1 - mpi.number(), bytes.data(), bytes.size()};
    if (mpi.number() == 0)
        processes.exchange({"a message", 3}, std::span(&message, 1), {});
    else
        processes.exchange({"a message", 3}, {}, std::span(&message, 1));
    return 0;
}

int run(std::string_view mode, const std::string& folder) {
    if (mode == "again") {
        {
            const MpiEnvironment first;
        }
        const MpiEnvironment second;
    }
    const MpiEnvironment mpi;
    // As when MPI writes to the connection of a process that was killed: it gets an error, and the signal ends no process.
    std::raise(SIGPIPE);
    if (mode == "equal") return equal(mpi);
    if (mode == "compressed") return compressed(mpi);
    if (mode == "sum") return sum(mpi);
    const auto nothing = [] {};
    if (mode == "replicas") return failing(mpi, {}, nothing);
    if (mode == "seed") return failing(mpi, {}, nothing, static_cast<std::uint64_t>(mpi.number()));
    if (mode == "folder") return failing(mpi, mpi.number() == 1 ? folder + "/missing" : folder, nothing);
    if (mode == "deadline") return failing(mpi, {}, nothing, 5, 0);
    // The launcher ends the others with this signal, whose file is then not written: a TrainingRun handles it too.
    std::signal(SIGTERM, SIG_IGN);
    if (mode == "kill") return failing(mpi, folder, [] { std::raise(SIGKILL); });
    if (mode == "hang") return failing(mpi, folder, hang);
    if (mode == "hang-sum") return failing<MpiAllReduce>(mpi, folder, hang);
    if (mode == "unopened") return unopened(mpi);
    if (mode == "larger") return larger_message(mpi);
    if (mode == "silent") return silent(folder, mpi);
    if (mode == "error") return failing(mpi, folder, [] { throw DataError("file 7 is damaged"); });
    if (mode == "kill-part") return failing_in_part(mpi, folder, [] { std::raise(SIGKILL); });
    if (mode == "hang-part") return failing_in_part(mpi, folder, hang);
    if (mode == "error-part") return failing_in_part(mpi, folder, [] { throw DataError("file 7 is damaged"); });
    throw InvalidArgument(text("there is no mode ", mode));
}

}  // namespace

/// MPI's own name for a call that a program observes.
extern "C" int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm of,
                              MPI_Request* request) {
    ++posted_sums;
    return PMPI_Iallreduce(from, to, count, type, op, of, request);
}

/// Nothing is complete for the thread that polls, so that the sums remain for the one that waits.
extern "C" int MPI_Testsome(int requests, MPI_Request* first, int* complete, int* which, MPI_Status* statuses) {
    if (order.on) {
        if (!order.is_waiting_thread()) {
            Order::polls = true;
            *complete = 0;
            return MPI_SUCCESS;
        }
        order.looks = true;
        usleep(5000);
    }
    return PMPI_Testsome(requests, first, complete, which, statuses);
}

// In place of the system's.
extern "C" int nanosleep(const timespec* time, timespec* rest) {
    Order::locks = 0;
    return clock_nanosleep(CLOCK_REALTIME, 0, time, rest);
}
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
    static const auto lock = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    if (order.on && Order::polls && ++Order::locks == 2) {
        order.has_decided = true;
        while (order.on && !order.looks) usleep(100);
    }
    // The other thread goes on in the gaps between two locks.
    if (order.on && order.looks && order.is_waiting_thread()) usleep(5000);
    return lock(mutex);
}

int main(int argc, char** argv) try {
    return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "") == 0 ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
