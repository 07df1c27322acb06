// SPDX-License-Identifier: Apache-2.0
//
// Usage: mpirun --with-ft ulfm -n P mpi_survivors FOLDER STEPS [FAULT]...
// A training of four replicas, with a checkpoint every 4 steps, that goes on when processes are killed. Process 0 of
// those that are left prints the step that each part begins with, and a hash of the losses of all steps and of the last state.
// A fault is KIND:PROCESS@STEP, with the process's number at the start:
//
//   kill    kill -9 before it computes the step        write   kill -9 of process 0 while it writes the checkpoint of that step
//   stop    SIGSTOP before it computes the step        error   an error while it computes the step
//   crash   SIGSEGV before it computes the step        exit    exit(1) after the step
//   leave   an error after its last step, STEP, which   end     kill -9 after its last step, before the others have ended
//           the others do not hear of
//   folder  the process's file is to be written to a folder that does not exist, from step 0
//   late    the process hears of the end of the run, after step STEP, 1 s later than the others; if one of them has left by then,
//           it hears of a loss instead, as happens between machines
//
// tests/mpi/run starts it.
//
// Covers: cupola/processes/mpi_environment.hpp, cupola/processes/mpi/mpi_calls.hpp
#include <cupola/processes/mpi_environment.hpp>

#include <cinttypes>
#include <csignal>
#include <thread>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cupola/mpi.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/train/training_run.hpp>

#include "../processes/process_trainings.hpp"
#include "../standard.hpp"

namespace {

using namespace cupola;

struct Fault {
    std::string kind;
    int process = 0;
    std::int64_t step = 0;
};
std::vector<Fault> faults;
int number_at_start = 0;
std::int64_t step_to_be_written = -1;
bool hears_late = false;
/// The ids of all processes at the start, in the system.
std::vector<std::int64_t> ids;

[[nodiscard]] Fault fault_of(std::string_view words) {
    Fault fault;
    const std::size_t colon = words.find(':'), at = words.find('@');
    require(colon < at && at != std::string_view::npos, words, " is not KIND:PROCESS@STEP");
    fault.kind = words.substr(0, colon);
    fault.process = std::atoi(std::string(words.substr(colon + 1)).c_str());
    fault.step = std::atoll(std::string(words.substr(at + 1)).c_str());
    return fault;
}

/// Whether this process has a fault of the kind at the step.
[[nodiscard]] bool fails(std::string_view kind, std::int64_t step) {
    for (const Fault& each : faults) {
        if (each.kind == kind && each.process == number_at_start && each.step == step) return true;
    }
    return false;
}

/// Every step's losses, and that a repeated step has the same.
class Losses {
public:
    void on_step(const StepReport& report, Run&) {
        std::vector<double> losses{report.loss};
        for (const ReplicaReport& each : report.replicas) losses.push_back(each.total);
        const auto [place, added] = of_step_.try_emplace(report.step, losses);
        require<DataError>(added || place->second == losses, "step ", report.step, " has other losses than before");
        if (fails("exit", report.step)) std::exit(1);
        if (fails("write", report.step + 1)) step_to_be_written = report.step + 1;
    }
    [[nodiscard]] std::vector<double> all() const {
        std::vector<double> losses;
        for (const auto& [step, each] : of_step_) losses.insert(losses.end(), each.begin(), each.end());
        return losses;
    }

private:
    std::map<std::int64_t, std::vector<double>> of_step_;
};

[[nodiscard]] std::uint64_t hash_of_bytes(std::span<const std::byte> bytes, std::uint64_t hash) {
    for (const std::byte each : bytes) hash = (hash ^ static_cast<std::uint64_t>(each)) * 1099511628211U;
    return hash;
}

int run(const std::string& folder, std::int64_t steps) {
    MpiEnvironment mpi({.survives = true, .deadline_seconds = 4, .folder = folder});
    number_at_start = mpi.number();
    ids.resize(static_cast<std::size_t>(mpi.count()));
    const std::int64_t id = getpid();
    MPI_Allgather(&id, 1, MPI_INT64_T, ids.data(), 1, MPI_INT64_T, MPI_COMM_WORLD);
    const processes::Batches data({.unequal = true});
    Losses losses;
    return mpi.survive([&] {
        TrainingRunOptions options{.folder = folder,
                                   .resume = mpi.lost().empty() ? Resume::no : Resume::if_there,
                                   .writes = mpi.number() == 0,
                                   .max_steps = steps,
                                   .checkpoint_every = 4};
        TrainingRun run(options);
        const MpiConcatMean averaging{
            .deadline_seconds = 4, .folder = fails("folder", 0) ? folder + "/missing" : folder, .environment = &mpi};
        processes::Training<MpiConcatMean, processes::AnyStatistics> training(
            processes::options_of({.unequal = true}, averaging, processes::AnyStatistics{3}));
        const auto batches = [&](std::int64_t step, int replica, HostContext& context) {
            if (fails("kill", step)) std::raise(SIGKILL);
            if (fails("crash", step)) std::raise(SIGSEGV);
            if (fails("stop", step)) std::raise(SIGSTOP);
            if (fails("error", step)) throw DataError("file 7 is damaged");
            return data(step, replica, context);
        };
        const int status = run.train(training, batches, NoTest{}, losses);
        hears_late = fails("late", training.step());
        if (fails("end", training.step())) std::raise(SIGKILL);
        if (fails("leave", training.step())) throw DataError("the disk is full");
        if (mpi.number() == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));  // as an evaluation, for which the others wait
            const TrainingState state = training.state();
            const std::vector<double> all = losses.all();
            std::uint64_t hash = hash_of_bytes(std::as_bytes(std::span(all)), 14695981039346656037U);
            hash = hash_of_bytes(std::as_bytes(std::span(state.parameters)), hash);
            hash = hash_of_bytes(std::as_bytes(std::span(state.buffers)), hash);
            hash = hash_of_bytes(std::as_bytes(std::span(state.averages)), hash);
            std::printf("%d processes: step %" PRId64 ", hash %016" PRIx64 "\n", mpi.count(), state.step, hash);
            std::fflush(stdout);
        }
        return status;
    });
}

}  // namespace

/// In place of the system's: a checkpoint is synced before it gets its name.
extern "C" int fsync(int file) {
    if (step_to_be_written >= 0) {
        char path[4096] = {};
        const ssize_t length = readlink(text("/proc/self/fd/", file).c_str(), path, sizeof path - 1);
        if (length > 0 && std::string_view(path).find(text("model-", step_to_be_written)) != std::string_view::npos)
            std::raise(SIGKILL);
    }
    return static_cast<int>(syscall(SYS_fsync, file));
}

/// Found in place of Open MPI's, which it calls.
extern "C" int MPIX_Comm_agree(MPI_Comm processes, int* bits) {
    const auto agree = reinterpret_cast<int (*)(MPI_Comm, int*)>(dlsym(RTLD_NEXT, "MPIX_Comm_agree"));
    std::vector<std::int64_t> others = ids;
    std::erase_if(others, [](std::int64_t each) { return !impl::process_exists(each); });
    const int status = agree(processes, bits);
    if (!std::exchange(hears_late, false)) return status;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const bool one_has_left = !std::all_of(others.begin(), others.end(), impl::process_exists);
    return one_has_left ? impl::MpiFaultTolerance::process_failed : status;
}

int main(int argc, char** argv) try {
    for (int i = 3; i < argc; ++i) faults.push_back(fault_of(argv[i]));
    return run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoll(argv[2]) : 0);
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
