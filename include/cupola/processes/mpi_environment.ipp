// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/processes/mpi_environment.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/launched_processes.hpp>
#include <cupola/processes/mpi/mpi_calls.hpp>
#include <cupola/processes/mpi_environment.hpp>
#include <cupola/processes/watch/exchange_watchdog.hpp>
#include <cupola/processes/watch/liveness.hpp>
#include <cupola/processes/watch/shared_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

CUPOLA_MPI_DECL MpiEnvironment::MpiEnvironment(const MpiOptions& options) {  // misspelt? MpiOptions{...} names it
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
        // a reduce-scatter and an all-gather.
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
    require<DeviceError>(count_ > 1 || launched.count == 1, "this process is alone for MPI, but its launcher has set ",
                         launched.variable, " to ", launched.count,
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

CUPOLA_MPI_DECL MpiEnvironment::~MpiEnvironment() {
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

CUPOLA_MPI_DECL std::vector<int> MpiEnvironment::visible() const {
    std::vector<int> numbers;
    for (int p = 0; p < count_; ++p) {
        if (is_visible(numbers_[static_cast<std::size_t>(p)])) numbers.push_back(p);
    }
    return numbers;
}

CUPOLA_MPI_DECL void MpiEnvironment::watch_exits(impl::ExchangeWatchdog& watchdog) const {
    watchdog.watch_exits(exit_flag(), [this] { return exited_process(); });
}

CUPOLA_MPI_DECL void MpiEnvironment::ignore_broken_pipes() {
    struct sigaction action = {};
    if (sigaction(SIGPIPE, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 ||
        action.sa_handler != SIG_DFL)
        return;
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
}

CUPOLA_MPI_DECL void MpiEnvironment::start_fault_tolerance(const MpiOptions& options, MPI_Comm machine) {
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
    impl::check_mpi(MPI_Barrier(visible), "MPI_Barrier");
    MPI_Comm_free(&visible);
    watchdog_ = std::make_unique<impl::ExchangeWatchdog>(number_, count_, options.deadline_seconds, options.folder);
    watch_exits(*watchdog_);
    // Last, since the memory of the flag goes with an environment that cannot be made.
    flag_set_at_exit() = exit_flag();
    std::atexit([] {
        if (flag_set_at_exit() != nullptr) *flag_set_at_exit() = 1;
    });
}

CUPOLA_MPI_DECL bool MpiEnvironment::all_have_ended(double since) {
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

CUPOLA_MPI_DECL void MpiEnvironment::shrink_to_survivors(double since) {
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

CUPOLA_MPI_DECL bool MpiEnvironment::agree_on_killed(MPI_Comm left, std::span<const int> lost,
                                                     std::vector<int>& unproven) const {
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

CUPOLA_MPI_DECL void MpiEnvironment::end_process(const std::string& why) const { watchdog_->end_process(why); }

CUPOLA_MPI_DECL std::string MpiEnvironment::list_of(std::span<const int> numbers) {
    std::string list;
    for (const int p : numbers) list += text(list.empty() ? "" : ", ", p);
    return list;
}

}}  // namespace cupola::CUPOLA_ABI
