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
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/parallel/launched_processes.hpp>
#include <cupola/processes/mpi/mpi_calls.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/watch/exchange_watchdog.hpp>
#include <cupola/processes/watch/liveness.hpp>
#include <cupola/processes/watch/shared_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

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
    [[gnu::cold]] explicit MpiEnvironment(const MpiOptions& options = {}) {  // misspelt? MpiOptions{...} names it
        require<DeviceError>(
            impl::mpi_flag(MPI_Finalized) == 0,
            "MPI was finalised in this process, by an earlier MpiEnvironment or by the program, and cannot "
            "be initialised again: make one MpiEnvironment in main(), for all trainings");
        ignore_broken_pipes();
        // With fault tolerance, the others wait forever if a process is killed while MPI starts.
        std::unique_ptr<impl::ExchangeWatchdog> start;
        if (options.survives) {
            const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
            start = std::make_unique<impl::ExchangeWatchdog>(rank == nullptr ? 0 : std::atoi(rank), 1,
                                                             options.deadline_seconds, options.folder);
            start->begin({"the start of MPI"});
        }
        int provided = MPI_THREAD_SINGLE;
        if (impl::mpi_flag(MPI_Initialized) != 0) {
            impl::check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
        } else {
            // By default Open MPI sends the whole in-place sum to one process and back, which takes twice as long as
            // Rabenseifner's algorithm (reduce-scatter, then all-gather).
            setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "rabenseifner", 0);
            impl::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
            finalizes_ = true;
        }
        require<DeviceError>(provided >= MPI_THREAD_SERIALIZED,
                             "MPI was initialised without the support of several threads: call MPI_Init_thread with "
                             "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, or leave it to MpiEnvironment");
        impl::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &count_), "MPI_Comm_size");
        impl::check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &number_), "MPI_Comm_rank");
        const auto launched = impl::launched_processes([](const char* name) { return std::getenv(name); });
        require<DeviceError>(count_ > 1 || launched.count == 1,
                             "this process is alone for MPI, but its launcher has set ", launched.variable, " to ",
                             launched.count,
                             ": start the program with the mpirun of the MPI that it is linked to, or with "
                             "`srun --mpi=pmix`");
        if (options.survives) functions_ = impl::MpiFaultTolerance::found();
        started_ = count_;
        for (int p = 0; p < count_; ++p) numbers_.push_back(p);
        MPI_Comm machine = MPI_COMM_NULL;
        impl::check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
                        "MPI_Comm_split_type");
        on_machine_ = impl::translated_ranks(machine, MPI_COMM_WORLD);
        if (options.survives) start_fault_tolerance(options, machine);
        MPI_Comm_free(&machine);
    }
    MpiEnvironment(const MpiEnvironment&) = delete;
    MpiEnvironment& operator=(const MpiEnvironment&) = delete;
    /// Does not finalise MPI during stack unwinding: MPI_Finalize would wait for the other processes, whereas a process
    /// that ends without it ends the job.
    ~MpiEnvironment() {
        if (survives() && std::uncaught_exceptions() > 0) *exit_flag() = 1;
        flag_set_at_exit() = nullptr;
        if (!finalizes_ || std::uncaught_exceptions() > 0 || impl::mpi_flag(MPI_Finalized) != 0) return;
        // After a loss MPI_Finalize may wait for the lost processes (observed with Open MPI 5.0.11). All survivors have
        // ended the run, and mpirun does not need the call.
        if (!lost_.empty()) return;
        // With fault tolerance, the others wait forever if a process is killed here.
        if (watchdog_ != nullptr) watchdog_->begin({"the end of MPI"});
        MPI_Finalize();
        if (watchdog_ != nullptr) watchdog_->end();
    }

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
    [[nodiscard]] std::vector<int> visible() const {
        std::vector<int> numbers;
        for (int p = 0; p < count_; ++p) {
            if (is_visible(numbers_[static_cast<std::size_t>(p)])) numbers.push_back(p);
        }
        return numbers;
    }
    /// Makes a watchdog set this process's exit flag, and check those of the other processes on this machine.
    [[gnu::cold]] void watch_exits(impl::ExchangeWatchdog& watchdog) const {
        watchdog.watch_exits(exit_flag(), [this] { return exited_process(); });
    }

private:
    /// Open MPI writes to the connection of a killed process before it checks whether it is closed: SIGPIPE would end
    /// this process without a message. A handler of the program is kept.
    [[gnu::cold]] static void ignore_broken_pipes() {
        struct sigaction action = {};
        if (sigaction(SIGPIPE, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 ||
            action.sa_handler != SIG_DFL)
            return;
        action.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &action, nullptr);
    }
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

    [[gnu::cold]] void start_fault_tolerance(const MpiOptions& options, MPI_Comm machine) {
        MPI_Comm visible = impl::split_by_pid_namespace(machine);
        visible_ = impl::translated_ranks(visible, MPI_COMM_WORLD);
        impl::check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
        impl::check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        // The first process creates the shared memory and keeps it until all others have opened it.
        impl::SharedMemory::Address address;
        if (visible_.front() == number_) {
            memory_ = impl::SharedMemory(impl::Liveness::bytes_of(count_));
            address = memory_.address();
        }
        impl::check_mpi(MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, visible), "MPI_Bcast");
        if (visible_.front() != number_) memory_ = impl::SharedMemory(address);
        liveness_ = impl::Liveness(memory_.data(), count_);
        liveness_.begin(number_);
        flag_set_at_exit() = exit_flag();
        std::atexit([] {
            if (flag_set_at_exit() != nullptr) *flag_set_at_exit() = 1;
        });
        impl::check_mpi(MPI_Barrier(visible), "MPI_Barrier");
        MPI_Comm_free(&visible);
        watchdog_ = std::make_unique<impl::ExchangeWatchdog>(number_, count_, options.deadline_seconds, options.folder);
        watch_exits(*watchdog_);
    }

    /// Called by all processes at the end of `run`. Returns whether it has ended on all of them without a loss. `since`
    /// is the time at which a process that has noticed a loss began to wait, negative if this process has noticed none.
    [[gnu::cold]] bool all_have_ended(double since) {
        watchdog_->begin({"the end of the run"}, since);
        int ended = since < 0 ? 1 : 0;
        if (ended == 0) {
            functions_.revoke(communicator_);
        }
        const int status = functions_.agree(communicator_, &ended);
        const bool all = status == MPI_SUCCESS && ended != 0;
        if (all) {
            // A process that exited now would count as lost for those that have not received the result of this
            // agreement. A process that takes part in the next agreement has received it, and a loss during that one no
            // longer matters.
            int received = 1;
            static_cast<void>(functions_.agree(communicator_, &received));
        }
        watchdog_->end();
        if (!impl::MpiFaultTolerance::is_loss(status)) impl::check_mpi(status, "MPIX_Comm_agree");
        return all;
    }

    /// Replaces the communicator by one of the surviving processes, or ends this process.
    [[gnu::cold]] void shrink_to_survivors(double since) {
        watchdog_->begin({"the agreement of the processes that are left"}, since);
        for (;;) {
            functions_.revoke(communicator_);
            MPI_Comm left = MPI_COMM_NULL;
            impl::check_mpi(functions_.shrink(communicator_, &left), "MPIX_Comm_shrink");
            impl::check_mpi(MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
            // All process numbers below are those at the start.
            std::vector<int> numbers, lost;
            for (const int p : impl::translated_ranks(left, communicator_))
                numbers.push_back(numbers_[static_cast<std::size_t>(p)]);
            for (const int p : numbers_) {
                if (std::find(numbers.begin(), numbers.end(), p) == numbers.end()) lost.push_back(p);
            }
            const std::string which = list_of(lost);
            if (!impl::may_go_on(static_cast<int>(numbers.size()), count_, numbers.front() == numbers_.front()))
                end_process(text("of ", count_, " processes ", which,
                                 " are not there any more: only more than half of them, or "
                                 "half with process ",
                                 numbers_.front(), ", go on"));
            std::vector<int> unproven;
            if (!agree_on_killed(left, lost, unproven)) continue;  // another one was lost: agree again
            if (!unproven.empty())
                end_process(text("it is not known that ", list_of(unproven), " of ", count_,
                                 " were killed: they may still exist, or have ended by themselves"));
            watchdog_->end();
            communicator_ = left;  // the previous one is not freed, which would need all processes
            count_ = static_cast<int>(numbers.size());
            const int mine = numbers_[static_cast<std::size_t>(number_)];
            number_ = static_cast<int>(std::find(numbers.begin(), numbers.end(), mine) - numbers.begin());
            numbers_ = std::move(numbers);
            lost_.insert(lost_.end(), lost.begin(), lost.end());
            return;
        }
    }
    /// Finds the lost processes of which no survivor knows that they were killed; the result is the same on all
    /// survivors. Returns false if another process was lost meanwhile.
    [[gnu::cold]] bool agree_on_killed(MPI_Comm left, std::span<const int> lost, std::vector<int>& unproven) const {
        constexpr std::size_t bits = 30;
        for (std::size_t begin = 0; begin < lost.size(); begin += bits) {
            const auto part = lost.subspan(begin, std::min(bits, lost.size() - begin));
            // The agreement is a bitwise AND: a bit that remains set means that no process knows of the kill.
            int unknown = (1 << part.size()) - 1;
            for (std::size_t i = 0; i < part.size(); ++i) {
                if (is_visible(part[i]) && liveness_.was_killed(part[i])) unknown &= ~(1 << i);
            }
            const int status = functions_.agree(left, &unknown);
            if (impl::MpiFaultTolerance::is_loss(status)) return false;
            impl::check_mpi(status, "MPIX_Comm_agree");
            for (std::size_t i = 0; i < part.size(); ++i) {
                if ((unknown >> i & 1) != 0) unproven.push_back(part[i]);
            }
        }
        return true;
    }
    [[noreturn, gnu::cold]] void end_process(const std::string& why) const { watchdog_->end_process(why); }
    [[nodiscard, gnu::cold]] static std::string list_of(std::span<const int> numbers) {
        std::string list;
        for (const int p : numbers) list += text(list.empty() ? "" : ", ", p);
        return list;
    }

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
