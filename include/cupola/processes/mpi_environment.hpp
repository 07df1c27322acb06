// SPDX-License-Identifier: Apache-2.0
//
// MpiEnvironment: initialises MPI, and finalises it at the end (cupola::mpi). Create one in main(), before any
// training; all trainings must end before it is destroyed.
//
// With `.survives` a training that resumes from a checkpoint continues after one of its processes was killed:
//
//   MpiEnvironment mpi({.survives = true, .folder = "run1"});       mpirun --with-ft ulfm -n 4 program
//   return mpi.survive([&] {
//       TrainingRun run({.folder = "run1", .resume = Resume::if_there, .writes = mpi.number() == 0});
//       DataParallel<Net, Loss, Sgd, MpiConcatMean, Host> training({.replicas = 4,
//                                                                   .averaging = {.environment = &mpi}});
//       ...
//       return run.train(training, batches, test);
//   });
//
// docs/how-to/processes.md states what is guaranteed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/processes/mpi/mpi_calls.hpp>
#include <cupola/processes/watch/liveness.hpp>
#include <cupola/processes/watch/shared_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {
class ExchangeWatchdog;
}  // namespace impl

struct MpiOptions {
    /// Whether the surviving processes continue after others were killed. Needs Open MPI 5.0 and
    /// `mpirun --with-ft ulfm`.
    bool survives = false;
    /// As in MpiConcatMean, for the agreement of the surviving processes.
    double deadline_seconds = 60;
    std::string folder{};
};

class MpiEnvironment {
public:
    /// Throws DeviceError
    /// - if MPI does not support calls from several threads in turn (MPI_THREAD_SERIALIZED);
    /// - if MPI reports one process although the launcher set more, each of which would then train alone;
    /// - for `survives` without MPI's fault tolerance;
    /// - if MPI was already finalised in this process.
    ///
    /// Throws InvalidArgument for a deadline that is not greater than 0. From then on the process ignores SIGPIPE,
    /// unless the program has a handler for it.
    explicit MpiEnvironment(const MpiOptions& options = {});
    MpiEnvironment(const MpiEnvironment&) = delete;
    MpiEnvironment& operator=(const MpiEnvironment&) = delete;
    /// Does not finalise MPI during stack unwinding: MPI_Finalize would wait for the other processes, whereas a process
    /// that ends without it ends the job.
    ~MpiEnvironment();

    /// The number of surviving processes of the job, and the number of this one among them.
    [[nodiscard]] int count() const { return count_; }
    [[nodiscard]] int number() const { return number_; }
    /// The number of surviving processes on this machine.
    [[nodiscard]] int count_on_machine() const {
        return static_cast<int>(
            std::count_if(on_machine_.begin(), on_machine_.end(), [&](int p) { return is_survivor(p); }));
    }

    /// Whether a training can continue after a process was killed.
    [[nodiscard]] bool survives() const { return functions_.shrink != nullptr; }
    /// The number of processes that the job was started with; and the killed processes, by their numbers at the start,
    /// in the order in which they were lost.
    [[nodiscard]] int started() const { return started_; }
    [[nodiscard]] std::span<const int> lost() const { return lost_; }

    /// Calls `run()`, which returns an int, and returns its result once all processes have ended it. If processes are
    /// killed before, `run` is called again on all survivors, as often as that happens: it makes a training whose
    /// policy has this environment, and resumes it from a checkpoint.
    ///
    /// It is called again only if every lost process was ended by a signal, such as SIGKILL. Ends this process with a
    /// message and exit status 75 if the survivors are not more than half of the previous processes, or half including
    /// process 0; and if an unreachable process may still exist or has exited by itself, by an exception, a deadline or
    /// exit(). Rethrows any other exception of `run`. Without `survives` it calls `run` once.
    template <class Run>
    int survive(Run&& run) {
        for (;;) {
            double since = -1;
            int result = 0;
            try {
                result = run();
                if (!survives()) return result;
            } catch (const ProcessLost& lost) {
                if (!survives()) throw;
                since = lost.since;
            } catch (...) {
                if (survives()) *exit_flag() = 1;
                throw;
            }
            if (all_have_ended(since)) return result;
            shrink_to_survivors(since);
        }
    }

    /// For policies: the communicator of the surviving processes, the functions of MPI's fault tolerance, and the
    /// processes in the same PID namespace of this machine. All process numbers are those of the communicator.
    [[nodiscard]] MPI_Comm communicator() const { return communicator_; }
    [[nodiscard]] const impl::MpiFaultTolerance& functions() const { return functions_; }
    [[nodiscard]] std::vector<int> visible() const;
    /// Makes a watchdog set this process's exit flag, and check those of the other processes on this machine.
    void watch_exits(impl::ExchangeWatchdog& watchdog) const;

private:
    /// Open MPI writes to the connection of a killed process before it checks whether it is closed: SIGPIPE would end
    /// this process without a message. A handler of the program is kept.
    static void ignore_broken_pipes();
    /// The exit flag that exit() sets to 1 while an environment with `survives` exists.
    [[nodiscard]] static std::atomic<std::int32_t>*& flag_set_at_exit() {
        static constinit std::atomic<std::int32_t>* flag = nullptr;
        return flag;
    }
    /// The flag of this process.
    [[nodiscard]] std::atomic<std::int32_t>* exit_flag() const {
        return liveness_.exit_flag(numbers_[static_cast<std::size_t>(number_)]);
    }
    /// The number at the start of a process that is not lost and has exited by itself; negative if there is none.
    [[nodiscard]] int exited_process() const {
        for (const int p : visible_) {
            if (is_survivor(p) && liveness_.has_exited(p)) return p;
        }
        return -1;
    }
    [[nodiscard]] bool is_survivor(int started_as) const {
        return std::find(numbers_.begin(), numbers_.end(), started_as) != numbers_.end();
    }

    [[nodiscard]] bool is_visible(int started_as) const {
        return std::find(visible_.begin(), visible_.end(), started_as) != visible_.end();
    }

    void start_fault_tolerance(const MpiOptions& options, MPI_Comm machine);

    /// Called by all processes at the end of `run`. Returns whether it has ended on all of them without a loss. `since`
    /// is the time at which a process that has noticed a loss began to wait, negative if this process has noticed none.
    [[nodiscard]] bool all_have_ended(double since);

    /// Replaces the communicator by one of the surviving processes, or ends this process.
    void shrink_to_survivors(double since);
    /// Finds the lost processes of which no survivor knows that they were killed; the result is the same on all
    /// survivors. Returns false if another process was lost meanwhile.
    bool agree_on_killed(MPI_Comm left, std::span<const int> lost, std::vector<int>& unproven) const;
    [[noreturn]] void end_process(const std::string& why) const;
    [[nodiscard]] static std::string list_of(std::span<const int> numbers);

    bool finalizes_ = false;
    int started_ = 1, count_ = 1, number_ = 0;
    impl::MpiFaultTolerance functions_;
    MPI_Comm communicator_ = MPI_COMM_WORLD;
    /// Numbers at the start: of the survivors; of the processes of this machine; of those in the same PID namespace,
    /// which are not separated by containers; and of the lost processes.
    std::vector<int> numbers_, on_machine_, visible_, lost_;
    impl::SharedMemory memory_;
    impl::Liveness liveness_;
    std::unique_ptr<impl::ExchangeWatchdog> watchdog_;
};

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_MPI_DECL
#include <cupola/processes/mpi_environment.ipp>
#endif
