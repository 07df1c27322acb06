// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/processes/mpi.hpp: the engine of its policies.
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/function_ref.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/processes/agreement/process_gather.hpp>
#include <cupola/processes/mpi.hpp>
#include <cupola/processes/mpi/mpi_calls.hpp>
#include <cupola/processes/mpi/mpi_heartbeats.hpp>
#include <cupola/processes/mpi/mpi_sums.hpp>
#include <cupola/processes/mpi_environment.hpp>
#include <cupola/processes/processes.hpp>
#include <cupola/processes/watch/exchange_watchdog.hpp>
#include <cupola/processes/watch/poll_pause.hpp>
#include <cupola/processes/watch/shared_memory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

class MpiProcesses final : public Processes {
public:
    /// See make_mpi_processes().
    [[gnu::cold]] MpiProcesses(double deadline_seconds, const std::string& folder, bool shares_memory,
                               const MpiEnvironment* environment, bool adds = false)
        : Processes(asked(MPI_Comm_size, environment), asked(MPI_Comm_rank, environment),
                    environment == nullptr ? std::vector<int>()
                                           : std::vector<int>(environment->lost().begin(), environment->lost().end())),
          shares_memory_(shares_memory),
          watchdog_(number(), count(), deadline_seconds, folder, numbers_at_start()) {
        constexpr ExchangeName start{"the start of the processes"};
        if (environment != nullptr && environment->survives()) {
            // No collective call here, because a process may be killed at any time.
            environment_ = environment;
            all_ = environment->communicator();
            visible_ = environment->visible();
            environment->watch_exits(watchdog_);
            static_cast<void>(gathered(*this, start, std::int32_t{0}));  // process 0 may first create the folder
            require_files(start);
            return;
        }
        // First waits by messages until all processes are here: a collective call that blocks does not report which is
        // missing.
        all_ = MPI_COMM_WORLD;
        static_cast<void>(gathered(*this, start, std::int32_t{0}));
        watchdog_.begin(start);
        check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
        check_mpi(MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        MPI_Comm machine = MPI_COMM_NULL;
        check_mpi(MPI_Comm_split_type(all_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine), "MPI_Comm_split_type");
        MPI_Comm visible = split_by_pid_namespace(machine);
        visible_ = translated_ranks(visible, all_);
        MPI_Comm_free(&visible);
        MPI_Comm_free(&machine);
        if (adds) sums_ = std::make_unique<MpiSums>(all_, watchdog_);
        watchdog_.end();
        heartbeats_ = MpiHeartbeats(all_, heartbeat_tag, number(), count(),
                                    deadline_seconds / ExchangeWatchdog::heartbeats_per_deadline);
        exchange_process_ids();
        require_files(start);
    }
    ~MpiProcesses() override {
        if (mpi_flag(MPI_Finalized) != 0) return;
        {
            const std::scoped_lock lock(mpi_mutex());
            heartbeats_.end();
        }
        // The rest waits for the other processes, which do not get here if an error ends the training.
        if (environment_ != nullptr || failed_ || std::uncaught_exceptions() > 0) return;
        watchdog_.begin({"the end of the training"});
        if (sums_ != nullptr) sums_->free();
        MPI_Comm_free(&all_);
        watchdog_.end();
    }

    void exchange(const ExchangeName& name, std::span<const ProcessMessage> outgoing,
                  std::span<const ProcessMessage> incoming) override {
        prepare(name);
        watchdog_.begin(name);
        peers_.clear();
        std::atomic_thread_fence(std::memory_order_seq_cst);
        for (const ProcessMessage& each : incoming) {
            for_each_piece(each, [&](std::byte* data, int bytes, MPI_Request& request) {
                peers_.push_back(each.process);
                check(serialized([&] { return MPI_Irecv(data, bytes, MPI_BYTE, each.process, tag, all_, &request); }),
                      "MPI_Irecv");
                watchdog_.count_missing(each.process, 1);
            });
        }
        for (const ProcessMessage& each : outgoing) {
            for_each_piece(each, [&](std::byte* data, int bytes, MPI_Request& request) {
                peers_.push_back(each.process);
                watchdog_.count_missing(each.process, 1);
                if (environment_ == nullptr) {
                    check(
                        serialized([&] { return MPI_Isend(data, bytes, MPI_BYTE, each.process, tag, all_, &request); }),
                        "MPI_Isend");
                    return;
                }
                // MPI ends this process if a send fails whose request MPI has already freed, which it does when the
                // request completes, even with an error. A persistent request is freed here, after its completion was
                // received.
                check(MPI_Ssend_init(data, bytes, MPI_BYTE, each.process, tag, all_, &request), "MPI_Ssend_init");
                check(MPI_Start(&request), "MPI_Start");
            });
        }
        done_.resize(requests_.size());
        statuses_.resize(requests_.size());
        auto left = static_cast<int>(requests_.size());
        PollPause pause;
        while (left > 0) {
            int count = 0;
            const int status = serialized([&] {
                return MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                                    statuses_.data());
            });
            check(first_error(status, count), "MPI_Testsome");
            if (count <= 0) {
                pause();
                continue;
            }
            left -= count;
            for (int i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(done_[static_cast<std::size_t>(i)]);
                watchdog_.count_missing(peers_[at], -1);
            }
        }
        for (MPI_Request& request : requests_) {
            if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
        }
        std::atomic_thread_fence(std::memory_order_seq_cst);
        watchdog_.end();
    }

    void sum(const ExchangeName& name, std::span<float> values) override {
        prepare(name);
        watchdog_.begin_with_all(name);
        heartbeats_.begin();
        constexpr std::size_t most = INT_MAX;
        for (std::size_t begin = 0; begin < values.size(); begin += most) {
            const auto piece = values.subspan(begin, std::min(most, values.size() - begin));
            requests_.assign(1, MPI_REQUEST_NULL);
            MPI_Request& request = requests_.front();
            check(MPI_Iallreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(piece.size()), MPI_FLOAT, MPI_SUM, all_,
                                 &request),
                  "MPI_Iallreduce");
            int complete = 0;
            for (PollPause pause;; pause()) {
                check(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
                if (complete != 0) break;
                exchange_heartbeats();
            }
        }
        watchdog_.end();
    }

    void begin_sum(const ExchangeName& name, std::span<float> values) override {
        sum_name_ = name;
        if (count() > 1) sums_->begin(name, values);
    }
    void finish_sums() override {
        require<DeviceError>(!failed_, "the sums of the processes do not end, since an exchange has failed");
        try {
            watchdog_.begin_with_all(sum_name_);
            heartbeats_.begin();
            sums_->finish([this] { exchange_heartbeats(); });
            watchdog_.end();
        } catch (...) {
            failed_ = true;
            watchdog_.end();
            throw;
        }
    }

    std::vector<std::byte*> share(std::size_t bytes) override {
        if (!shares_memory_ || static_cast<int>(visible_.size()) != count()) return {};
        // A process that fails reports that to the others, which would otherwise wait for it.
        struct Part {
            SharedMemory::Address address;
            std::int64_t failed = 0;
        };
        constexpr std::string_view operation = "the allocation of the shared memory";
        const auto all_made = [&](auto&& make) {
            std::exception_ptr error;
            Part mine;
            try {
                make();
                mine.address = parts_[static_cast<std::size_t>(number())].address();
            } catch (const Error&) {
                error = std::current_exception();
                mine.failed = 1;
            }
            std::vector<Part> all = gathered(*this, {operation}, mine);
            if (error) std::rethrow_exception(error);
            for (std::size_t p = 0; p < all.size(); ++p)
                require<DeviceError>(all[p].failed == 0, "process ", number_at_start(static_cast<int>(p)),
                                     " failed in ", operation);
            return all;
        };
        parts_.resize(static_cast<std::size_t>(count()));
        SharedMemory& mine = parts_[static_cast<std::size_t>(number())];
        const std::vector<Part> made = all_made([&] {
            mine = SharedMemory(bytes);
            std::memset(mine.data(), 0, bytes);  // first touched by the process that writes it most
        });
        static_cast<void>(all_made([&] {
            for (std::size_t p = 0; p < parts_.size(); ++p) {
                if (static_cast<int>(p) == number()) continue;
                try {
                    parts_[p] = SharedMemory(made[p].address);
                } catch (const DeviceError& cause) {
                    throw DeviceError(text(cause.what(), "; with .shares_memory = false processes exchange messages"));
                }
            }
        }));
        std::vector<std::byte*> places(parts_.size());
        for (std::size_t p = 0; p < places.size(); ++p) places[p] = parts_[p].data();
        return places;
    }

    [[nodiscard]] int sharing() const override { return shares_memory_ ? static_cast<int>(visible_.size()) : 1; }
    void wait(const ExchangeName& name, FunctionRef<bool()> is_done, FunctionRef<bool(int)> waits_for) override {
        const double since = monotonic_seconds();
        double looked = since;
        for (PollPause pause; !is_done(); pause()) {
            const double now = monotonic_seconds();
            if (now - looked < 0.05) continue;
            looked = now;
            const ExchangeWatchdog::Fault fault = watchdog_.fault_of_poll(since, waits_for);
            // The process may have done what this one waits for just before it ended.
            if (!fault.empty() && !is_done()) watchdog_.end_poll(name, fault);
        }
    }

private:
    /// The start uses the first one on the program's own communicator.
    static constexpr int tag = 32001, heartbeat_tag = 32002;

    [[nodiscard]] static int asked(int (*question)(MPI_Comm, int*), const MpiEnvironment* environment) {
        require(mpi_flag(MPI_Initialized) != 0 && mpi_flag(MPI_Finalized) == 0,
                "MPI is not initialised: make an object `const MpiEnvironment mpi;` in main(), before the training");
        int answer = 0;
        check_mpi(question(environment == nullptr ? MPI_COMM_WORLD : environment->communicator(), &answer),
                  "MPI_Comm_size or MPI_Comm_rank");
        return answer;
    }
    /// Throws DataError on all processes if one of them cannot write its file.
    [[gnu::cold]] void require_files(const ExchangeName& name) {
        for (const std::string& problem : gathered_texts(*this, name, watchdog_.problem()))
            require<DataError>(problem.empty(), problem);
    }
    /// Called while this process waits in a sum: sends heartbeats to the other processes and receives theirs.
    void exchange_heartbeats() {
        const std::scoped_lock lock(mpi_mutex());
        heartbeats_.exchange([&](int process) { watchdog_.record_heartbeat(process); });
    }
    void prepare(const ExchangeName& name) {
        name_ = name;
        requests_.clear();
    }
    void check(int status, const char* call) {
        if (status != MPI_SUCCESS) [[unlikely]]
            fail(status, call);
    }
    /// The status of a call for several requests or, if it is MPI_ERR_IN_STATUS, of one of the `count` completed
    /// requests: a process loss if there is one, otherwise the first error.
    [[nodiscard]] int first_error(int status, int count) const {
        if (status != MPI_ERR_IN_STATUS) [[likely]]
            return status;
        for (int i = 0; i < count; ++i) {
            const int each = statuses_[static_cast<std::size_t>(i)].MPI_ERROR;
            if (MpiFaultTolerance::is_loss(each)) return each;
            if (status == MPI_ERR_IN_STATUS && each != MPI_SUCCESS && each != MPI_ERR_PENDING) status = each;
        }
        return status;
    }
    [[noreturn, gnu::cold]] void fail(int status, const char* call) {
        failed_ = true;
        // The sums write into gradients that go with the training.
        if (sums_ != nullptr) sums_->stop();
        const bool lost = MpiFaultTolerance::is_loss(status);
        if (lost && environment_ != nullptr) {
            // Revoking ends the waits of all other processes too. Pending requests are completed because their memory
            // is about to be freed.
            environment_->functions().revoke(all_);
            done_.resize(requests_.size());
            statuses_.resize(requests_.size());
            for (int count = 0; count != MPI_UNDEFINED;) {
                MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                             statuses_.data());
            }
        }
        const double since = watchdog_.since();
        watchdog_.end();
        if (!lost) check_mpi(status, call);
        throw ProcessLost(
            text("a process of ", count(), " was lost, in ", name_.operation,
                 name_.step >= 0 ? text(" of step ", name_.step) : std::string(), ": ", mpi_error_text(status)),
            since);
    }

    /// MPI takes the number of bytes as an int.
    template <class Post>
    void for_each_piece(const ProcessMessage& message, Post&& post) {
        constexpr std::size_t most = std::size_t{1} << 30;
        for (std::size_t begin = 0; begin < message.bytes; begin += most) {
            requests_.push_back(MPI_REQUEST_NULL);
            post(message.data + begin, static_cast<int>(std::min(most, message.bytes - begin)), requests_.back());
        }
    }

    /// Gives the watchdog the PIDs of the processes in the same PID namespace, so that it can check whether they exist.
    [[gnu::cold]] void exchange_process_ids() {
        std::vector<std::int64_t> ids =
            gathered(*this, {"the start of the processes"}, static_cast<std::int64_t>(getpid()));
        for (int p = 0; p < count(); ++p) {
            if (std::find(visible_.begin(), visible_.end(), p) == visible_.end()) ids[static_cast<std::size_t>(p)] = 0;
        }
        watchdog_.set_process_ids(ids);
    }

    bool shares_memory_, failed_ = false;
    /// Null if all processes end when one is lost.
    const MpiEnvironment* environment_ = nullptr;
    MPI_Comm all_ = MPI_COMM_NULL;
    /// The processes of the same machine and PID namespace, whose PIDs are valid in this process.
    std::vector<int> visible_;
    std::vector<SharedMemory> parts_;
    ExchangeName name_, sum_name_;
    std::vector<MPI_Request> requests_;
    std::vector<MPI_Status> statuses_;
    /// The other process of each request; the indices of the requests that the last poll completed.
    std::vector<int> peers_, done_;
    MpiHeartbeats heartbeats_;
    ExchangeWatchdog watchdog_;
    /// Null unless the policy sums.
    std::unique_ptr<MpiSums> sums_;
};

CUPOLA_MPI_DECL std::shared_ptr<Processes> make_mpi_processes(double deadline_seconds, const std::string& folder,
                                                              bool shares_memory, const MpiEnvironment* environment,
                                                              bool adds) {
    return std::make_shared<MpiProcesses>(deadline_seconds, folder, shares_memory, environment, adds);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
