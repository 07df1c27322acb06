// SPDX-License-Identifier: Apache-2.0
//
// MpiEnvironment: initialises MPI, and finalises it at the end (cupola::mpi). Made once, in main(), before a training;
// the trainings must end before it.
//
// With `.survives` a training goes on after one of its processes was killed, if it resumes from a checkpoint:
//
//   MpiEnvironment mpi({.survives = true, .folder = "run1"});       mpirun --with-ft ulfm -n 4 program
//   return mpi.survive([&] {
//       TrainingRun run({.folder = "run1", .resume = Resume::if_there, .writes = mpi.number() == 0});
//       DataParallel<Net, Loss, Sgd, MpiConcatMean, Host> training({.replicas = 4, .averaging = {.environment = &mpi}});
//       ...
//       return run.train(training, batches, test);
//   });
//
// docs/how-to/processes.md has the promise.
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
    /// Whether the processes that are left go on after others were killed. Needs Open MPI 5.0 and
    /// `mpirun --with-ft ulfm`.
    bool survives = false;
    /// As in MpiConcatMean, for the agreement of the processes that are left.
    double deadline_seconds = 60;
    std::string folder{};
};

class MpiEnvironment {
public:
    /// Throws DeviceError if MPI does not allow calls from several threads in turn, and if this process is alone while
    /// its launcher says that it has started several: each of those would train alone; also for `survives` without
    /// MPI's fault tolerance, and after MPI was finalised in this process. Throws InvalidArgument for a deadline that
    /// is not more than 0. From then on the process ignores SIGPIPE, unless the program handles it.
    [[gnu::cold]] explicit MpiEnvironment(const MpiOptions& options = {}) {  // misspelt? MpiOptions{...} names it
        require<DeviceError>(
            impl::mpi_flag(MPI_Finalized) == 0,
            "MPI was finalised in this process, by an earlier MpiEnvironment or by the program, and cannot "
            "be initialised again: make one MpiEnvironment in main(), for all trainings");
        ignore_broken_pipes();
        // With fault tolerance, a process that is killed while MPI starts does not end the wait of the others.
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
            // By default Open MPI sends the whole sum in place to one process and back, in twice the time that halves
            // take.
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
    /// Finalises nothing while an exception passes: MPI would wait there for the other processes, and a process that
    /// ends without it ends the job.
    ~MpiEnvironment() {
        if (survives() && std::uncaught_exceptions() > 0) *exit_flag() = 1;
        flag_set_at_exit() = nullptr;
        if (!finalizes_ || std::uncaught_exceptions() > 0 || impl::mpi_flag(MPI_Finalized) != 0) return;
        // After a loss the end of MPI may wait for the processes that do not exist any more (seen with Open MPI
        // 5.0.11). All of them have ended the run, and mpirun does not need it.
        if (!lost_.empty()) return;
        // With fault tolerance, a process that is killed here does not end the wait of the others.
        if (watchdog_ != nullptr) watchdog_->begin({"the end of MPI"});
        MPI_Finalize();
        if (watchdog_ != nullptr) watchdog_->end();
    }

    /// The processes of the job that are left, and the number of this one among them.
    [[nodiscard]] int count() const { return count_; }
    [[nodiscard]] int number() const { return number_; }
    /// The processes that are left on this machine.
    [[nodiscard]] int count_on_machine() const {
        return static_cast<int>(
            std::count_if(on_machine_.begin(), on_machine_.end(), [&](int p) { return is_survivor(p); }));
    }

    /// Whether a training can go on without a process that was killed.
    [[nodiscard]] bool survives() const { return functions_.shrink != nullptr; }
    /// The processes that the job was started with, and the numbers that those which were killed had then, in that
    /// order.
    [[nodiscard]] int started() const { return started_; }
    [[nodiscard]] std::span<const int> lost() const { return lost_; }

    /// Calls `run()` and returns its result, an int, once all processes have ended it. If some are killed before, it is
    /// called again on all that are left, as often as that happens: `run` makes a training whose policy has this
    /// environment, and resumes it from a checkpoint. Only after a process was ended by a signal, such as that of kill
    /// -9: ends this process, with a message and the status 75, if the processes that are left are not more than half
    /// of those before, or half with process 0, and if a process that is not reached may still exist or has ended by
    /// itself, by an exception, a deadline or exit(). Rethrows any other exception of `run`. Without `survives`, it
    /// calls `run` once.
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

    /// For policies: the processes that are left, their functions, and what they are known by on this machine, to those
    /// that find each other by the system's numbers. All numbers are those of the communicator.
    [[nodiscard]] MPI_Comm communicator() const { return communicator_; }
    [[nodiscard]] const impl::MpiFaultTolerance& functions() const { return functions_; }
    [[nodiscard]] std::vector<int> visible() const {
        std::vector<int> numbers;
        for (int p = 0; p < count_; ++p) {
            if (is_visible(numbers_[static_cast<std::size_t>(p)])) numbers.push_back(p);
        }
        return numbers;
    }
    /// Tells a watchdog of the processes of this machine that end by themselves.
    [[gnu::cold]] void watch_exits(impl::ExchangeWatchdog& watchdog) const {
        watchdog.watch_exits(exit_flag(), [this] { return exited_process(); });
    }

private:
    /// Open MPI writes to the connection of a process that was killed before it looks whether it is closed: SIGPIPE
    /// would end this process without a message. A program's own handling of the signal stays.
    [[gnu::cold]] static void ignore_broken_pipes() {
        struct sigaction action = {};
        if (sigaction(SIGPIPE, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 ||
            action.sa_handler != SIG_DFL)
            return;
        action.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &action, nullptr);
    }
    /// What exit() sets to 1 while there is an environment that survives.
    [[nodiscard]] static std::atomic<std::int32_t>*& flag_set_at_exit() {
        static constinit std::atomic<std::int32_t>* flag = nullptr;
        return flag;
    }
    /// Of this process.
    [[nodiscard]] std::atomic<std::int32_t>* exit_flag() const {
        return liveness_.exit_flag(numbers_[static_cast<std::size_t>(number_)]);
    }
    /// A process that is not lost, and has ended by itself; below 0 if there is none.
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
        // The first process makes the memory of the signs, and has it until all have opened it.
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

    /// Called by all processes, at the end of `run`: whether it has ended without a loss on all of them. `since` is the
    /// time from which on a process that has learnt of a loss waits, below 0 if this process has not.
    [[gnu::cold]] bool all_have_ended(double since) {
        watchdog_->begin({"the end of the run"}, since);
        int ended = since < 0 ? 1 : 0;
        if (ended == 0) {
            functions_.revoke(communicator_);
        }
        const int status = functions_.agree(communicator_, &ended);
        const bool all = status == MPI_SUCCESS && ended != 0;
        if (all) {
            // A process that left now would be lost to those that have not heard of this agreement yet. One that comes
            // to the next has heard of it, and whether another one is lost there does not matter any more.
            int received = 1;
            static_cast<void>(functions_.agree(communicator_, &received));
        }
        watchdog_->end();
        if (!impl::MpiFaultTolerance::is_loss(status)) impl::check_mpi(status, "MPIX_Comm_agree");
        return all;
    }

    /// Makes the communicator that of the processes that are left, or ends this process.
    [[gnu::cold]] void shrink_to_survivors(double since) {
        watchdog_->begin({"the agreement of the processes that are left"}, since);
        for (;;) {
            functions_.revoke(communicator_);
            MPI_Comm left = MPI_COMM_NULL;
            impl::check_mpi(functions_.shrink(communicator_, &left), "MPIX_Comm_shrink");
            impl::check_mpi(MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
            // All numbers below are those of the start.
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
            if (!agree_on_killed(left, lost, unproven)) continue;  // one more was lost: all of them agree again
            if (!unproven.empty())
                end_process(text("it is not known that ", list_of(unproven), " of ", count_,
                                 " were killed: they may still exist, or have ended by themselves"));
            watchdog_->end();
            communicator_ = left;  // the former one is not freed, for which all would be needed
            count_ = static_cast<int>(numbers.size());
            const int mine = numbers_[static_cast<std::size_t>(number_)];
            number_ = static_cast<int>(std::find(numbers.begin(), numbers.end(), mine) - numbers.begin());
            numbers_ = std::move(numbers);
            lost_.insert(lost_.end(), lost.begin(), lost.end());
            return;
        }
    }
    /// Finds those of the lost processes of which no process that is left knows that they were killed; the same on all
    /// of them. Returns false if one more was lost meanwhile.
    [[gnu::cold]] bool agree_on_killed(MPI_Comm left, std::span<const int> lost, std::vector<int>& unproven) const {
        constexpr std::size_t bits = 30;
        for (std::size_t begin = 0; begin < lost.size(); begin += bits) {
            const auto part = lost.subspan(begin, std::min(bits, lost.size() - begin));
            // A bit that is set on all of them: none knows of it.
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
    /// The numbers at the start: of the processes that are left, of those of this machine, of those among them that
    /// find each other by the system's numbers (no containers are between them), and of the lost ones.
    std::vector<int> numbers_, on_machine_, visible_, lost_;
    impl::SharedMemory memory_;
    impl::Liveness liveness_;
    std::unique_ptr<impl::ExchangeWatchdog> watchdog_;
};

}}  // namespace cupola::CUPOLA_ABI
