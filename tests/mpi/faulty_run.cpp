// SPDX-License-Identifier: Apache-2.0
//
// Usage: mpirun -n P mpi_faulty_run FOLDER POLICY STEPS PAUSE DEADLINE REPLICAS
//
// A TrainingRun of REPLICAS replicas with a checkpoint after every third step, for tests that stop it: POLICY is `shared`
// (MpiConcatMean in common memory), `messages` (MpiConcatMean without) or `sums` (MpiAllReduce); with `periodic:` or
// `elastic:` before it, replicas with parameters of their own agree on a centre by it; with `downpour:`, `easgd:` (both
// round robin) or `hogwild:` before `shared`, they exchange with one that the processes share; with `pipeline:` the network
// of each process is in two parts, each on a device of its own. It resumes from what is in
// FOLDER, waits PAUSE milliseconds per step, and writes the id of each process to `<number>.pid` of FOLDER.ids. Process 0
// prints "bits" and a hash of the state at the end. Environment:
//
//   FAULT_IN_SAVE=N   process 0 is killed inside the write of its checkpoint N, from 1
//   FAULT_SURVIVED=1  the processes that are left go on after one was killed (not `sums`)
//
// tests/mpi/hosts and tests/mpi/faults start it.
#include <csignal>

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cupola/cupola.hpp>
#include <cupola/host.hpp>
#include <cupola/mpi.hpp>
#include <cupola/parallel/kinds/asynchronous.hpp>
#include <cupola/parallel/kinds/elastic_averaging.hpp>
#include <cupola/parallel/kinds/hogwild.hpp>
#include <cupola/parallel/kinds/one_of.hpp>
#include <cupola/parallel/kinds/periodic.hpp>
#include <cupola/parallel/pipeline.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/processes/shared_centre.hpp>
#include <cupola/train/training_run.hpp>

#include "../labelled_samples.hpp"
#include "../standard.hpp"

using namespace cupola;

namespace {

int saves_until_fault = 0;

}  // namespace

/// The system's, which a checkpoint's write calls once before its file gets its name.
extern "C" int fsync(int file) {
    if (saves_until_fault > 0 && --saves_until_fault == 0) std::raise(SIGKILL);
    return static_cast<int>(syscall(SYS_fsync, file));
}

namespace {

constexpr std::int64_t batch_size = 4;

struct SmallNet : Sequential<Input<4, 4, 1>, Conv2d<8, 3>, BatchNorm2d<>, ReLU, Flatten, Linear<16>, ReLU, Dropout<0.5>,
                             Linear<4>> {};

/// In parts where the policy says so.
struct InParts : ChosenSplit<SmallNet> {};

struct Batches : LabelledSamples {
    Batches() : LabelledSamples(64, SmallNet::input_shape, 4) {}
    /// The replicas' batches are unequal.
    BatchView operator()(std::int64_t place, int replica, HostContext&) const {
        return view((5 * place + 3 * replica) % (64 - batch_size),
                    (place + replica) % 3 == 0 ? batch_size - 1 : batch_size);
    }
};

/// FNV-1a of the bytes.
std::uint64_t hash_of(std::uint64_t hash, std::span<const std::byte> bytes) {
    for (const std::byte each : bytes) hash = (hash ^ static_cast<std::uint64_t>(each)) * 0x100000001b3;
    return hash;
}

struct Arguments {
    std::string folder, policy, kind;
    std::int64_t steps = 0, pause = 0;
    double deadline = 0;
    int replicas = 0;
};

/// A pause between two steps.
struct Rest {
    std::int64_t milliseconds;
    void on_step(const StepReport&, Run&) const {
        const timespec time{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000};
        nanosleep(&time, nullptr);
    }
};

template <class Averaging>
int run(const MpiEnvironment& mpi, const Arguments& arguments, const Averaging& averaging, int check_every = 1) {
    TrainingRun run({.folder = arguments.folder,
                     .resume = Resume::if_there,
                     .writes = mpi.number() == 0,
                     .max_steps = arguments.steps,
                     .log = {.every = 1, .file = mpi.number() == 0 ? stdout : std::fopen("/dev/null", "we")},
                     .checkpoint_every = 3,
                     .keep_checkpoints = 3});
    const int parts = arguments.kind == "pipeline" ? 2 : 1;
    DataParallel<InParts, CrossEntropy<4>, Sgd, Averaging, Host, Pooled> training(
        {.replicas = arguments.replicas,
         .devices = parts,
         .batch_size = batch_size,
         .other_batch_sizes = {batch_size - 1},
         .seed = 5,
         .optimizer = {.learning_rate = 0.05, .momentum = 0.9},
         .averaging = averaging,
         .check_every = check_every,
         .cut = {.parts = parts}});
    const int status = run.train(training, Batches(), NoTest{}, Rest{arguments.pause});
    const TrainingState state = training.state();
    if (status == 0 && mpi.number() == 0) {
        std::uint64_t hash = hash_of(0xcbf29ce484222325, std::as_bytes(std::span(state.parameters)));
        hash = hash_of(hash, std::as_bytes(std::span(state.buffers)));
        for (const ReplicaState& each : state.replicas) hash = hash_of(hash, std::as_bytes(std::span(each.parameters)));
        std::printf("bits %016llx\n", static_cast<unsigned long long>(hash));
    }
    return status;
}

template <class Averaging>
int with_kind(const MpiEnvironment& mpi, const Arguments& arguments, const Averaging& averaging) {
    if (arguments.kind == "periodic")
        return run(mpi, arguments,
                   Periodic<Averaging, Sgd>{
                       .every = 2, .averaging = averaging, .outer = {.learning_rate = 0.7, .momentum = 0.5}});
    if (arguments.kind == "elastic")
        return run(mpi, arguments, ElasticAveraging<Averaging>{.every = 2, .averaging = averaging});
    if constexpr (!sums_of_processes<Averaging>) {
        using Choice = OneOf<Averaging, SharedCentre<Asynchronous<Downpour>, Averaging>,
                             SharedCentre<Asynchronous<Elastic>, Averaging>, SharedCentre<Hogwild, Averaging>>;
        const auto with = [&]<class Policy>(const Policy& policy) {
            return run(mpi, arguments,
                       Choice(SharedCentre<Policy, Averaging>{.policy = policy, .processes = averaging}), 6);
        };
        const Order order = Order::round_robin();
        if (arguments.kind == "downpour") return with(Asynchronous<Downpour>{.rule = {.every = 2}, .order = order});
        if (arguments.kind == "easgd") return with(Asynchronous<Elastic>{.rule = {.every = 2}, .order = order});
        if (arguments.kind == "hogwild") return with(Hogwild{});
    }
    require(arguments.kind.empty() || arguments.kind == "pipeline", "there is no kind ", arguments.kind);
    return run(mpi, arguments, averaging);
}

int with_policy(const Arguments& arguments) {
    MpiEnvironment mpi({.survives = std::getenv("FAULT_SURVIVED") != nullptr,
                        .deadline_seconds = arguments.deadline,
                        .folder = arguments.folder});
    const std::string path = text(arguments.folder, ".ids/", mpi.number(), ".pid");
    if (std::FILE* const file = std::fopen(path.c_str(), "w")) {
        std::fprintf(file, "%d\n", static_cast<int>(getpid()));
        std::fclose(file);
    }
    if (const char* const saves = std::getenv("FAULT_IN_SAVE"); saves != nullptr && mpi.number() == 0)
        saves_until_fault = std::atoi(saves);
    const double deadline = arguments.deadline;
    if (arguments.policy == "sums")
        return with_kind(mpi, arguments, MpiAllReduce{.deadline_seconds = deadline, .folder = arguments.folder});
    require(arguments.policy == "shared" || arguments.policy == "messages", "there is no policy ", arguments.policy);
    return mpi.survive([&] {
        return with_kind(mpi, arguments,
                         MpiConcatMean{.deadline_seconds = deadline,
                                       .folder = arguments.folder,
                                       .shares_memory = arguments.policy == "shared",
                                       .environment = &mpi});
    });
}

}  // namespace

int main(int argc, char** argv) try {
    require(argc == 7, "the arguments are FOLDER POLICY STEPS PAUSE DEADLINE REPLICAS");
    const std::string policy = argv[2];
    const std::size_t colon = policy.find(':');
    return with_policy({.folder = argv[1],
                        .policy = policy.substr(colon == policy.npos ? 0 : colon + 1),
                        .kind = colon == policy.npos ? std::string() : policy.substr(0, colon),
                        .steps = std::atoll(argv[3]),
                        .pause = std::atoll(argv[4]),
                        .deadline = std::atof(argv[5]),
                        .replicas = std::atoi(argv[6])});
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
