// SPDX-License-Identifier: Apache-2.0
//
// A training of several processes by MPI: `mpirun -n 4 program`. The only header that includes <mpi.h> (cupola::mpi).
//
//   int main() {
//       const MpiEnvironment mpi;
//       DataParallel<Net, Loss, Sgd, MpiConcatMean, Host> training({.replicas = 4, .averaging = {.folder = "run1"}});
//
// `replicas` are those of all processes, whose number must divide it: process p of P has the replicas [p R / P, (p + 1) R / P).
//
//   MpiConcatMean   the mean of all rows in the replicas' order: the bits of one process with R replicas, for any P. On one
//                   machine the rows are in memory that all processes share, and each averages its slice of the columns; else
//                   the slices of rows and average are exchanged, 2 (P - 1) / P times the size of the gradient
//   MpiAllReduce    the sum of the processes' weighted sums by MPI_Iallreduce, in parts while the backward passes run. The order of
//                   additions, and so the last bits, depend on P and on the size of the parts
//
// docs/how-to/processes.md has the launchers, and what happens when a process fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/parallel/impl/exchange_watchdog.hpp>
#include <cupola/parallel/impl/launcher_variables.hpp>
#include <cupola/parallel/impl/mpi_calls.hpp>
#include <cupola/parallel/impl/mpi_sums.hpp>
#include <cupola/parallel/impl/process_compressed_sums_agreement.hpp>
#include <cupola/parallel/impl/process_gather.hpp>
#include <cupola/parallel/impl/process_rows_agreement.hpp>
#include <cupola/parallel/impl/process_sums_agreement.hpp>
#include <cupola/parallel/processes.hpp>

namespace cupola::inline CUPOLA_ABI {

/// Initialises MPI, unless the program has done so, and finalises it at the end. Made once, in main(), before a training; the
/// trainings must end before it.
class MpiEnvironment {
public:
    /// Throws DeviceError if MPI does not allow calls from several threads in turn, and if this process is alone while its
    /// launcher says that it has started several: each of those would train alone.
    [[gnu::cold]] MpiEnvironment() {
        int provided = MPI_THREAD_SINGLE;
        if (impl::mpi_flag(MPI_Initialized) != 0) {
            impl::check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
        } else {
            // By default Open MPI sends the whole sum in place to one process and back, in twice the time that halves take.
            setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "rabenseifner", 0);
            impl::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
            finalizes_ = true;
        }
        require<DeviceError>(provided >= MPI_THREAD_SERIALIZED,
                             "MPI was initialised without the support of several threads: call MPI_Init_thread with "
                             "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, or leave it to MpiEnvironment");
        impl::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &count_), "MPI_Comm_size");
        impl::check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &number_), "MPI_Comm_rank");
        MPI_Comm machine = MPI_COMM_NULL;
        impl::check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
                        "MPI_Comm_split_type");
        impl::check_mpi(MPI_Comm_size(machine, &count_on_machine_), "MPI_Comm_size");
        MPI_Comm_free(&machine);
        const auto launched = impl::launched_processes([](const char* name) { return std::getenv(name); });
        require<DeviceError>(count_ > 1 || launched.count == 1,
                             "this process is alone for MPI, but its launcher has set ", launched.variable, " to ",
                             launched.count,
                             ": start the program with the mpirun of the MPI that it is linked to, or with "
                             "`srun --mpi=pmix`");
    }
    MpiEnvironment(const MpiEnvironment&) = delete;
    MpiEnvironment& operator=(const MpiEnvironment&) = delete;
    /// Finalises nothing while an exception passes: MPI would wait there for the other processes, and a process that ends
    /// without it ends the job.
    ~MpiEnvironment() {
        if (finalizes_ && std::uncaught_exceptions() == 0 && impl::mpi_flag(MPI_Finalized) == 0) MPI_Finalize();
    }

    /// The processes of the job, and the number of this one.
    [[nodiscard]] int count() const { return count_; }
    [[nodiscard]] int number() const { return number_; }
    /// The processes on this machine.
    [[nodiscard]] int count_on_machine() const { return count_on_machine_; }

private:
    bool finalizes_ = false;
    int count_ = 1, number_ = 0, count_on_machine_ = 1;
};

namespace impl {

class MpiProcesses final : public Processes {
public:
    /// See MpiConcatMean for the arguments; `adds`: whether begin_sum() is called.
    [[gnu::cold]] MpiProcesses(double deadline_seconds, const std::string& folder, bool shares_memory,
                               bool adds = false)
        : Processes(asked(MPI_Comm_size), asked(MPI_Comm_rank)),
          shares_memory_(shares_memory),
          watchdog_(number(), count(), deadline_seconds, folder) {
        watchdog_.begin({"the start of the processes"});
        check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
        check_mpi(MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check_mpi(MPI_Comm_split_type(all_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_), "MPI_Comm_split_type");
        if (adds) sums_ = std::make_unique<MpiSums>(all_, watchdog_);
        watchdog_.end();
        learn_ids();
    }
    ~MpiProcesses() override {
        // These wait for the other processes, which do not come here if an error ends the training.
        if (failed_ || std::uncaught_exceptions() > 0 || mpi_flag(MPI_Finalized) != 0) return;
        watchdog_.begin({"the end of the training"});
        if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
        if (sums_ != nullptr) sums_->free();
        MPI_Comm_free(&node_);
        MPI_Comm_free(&all_);
        watchdog_.end();
    }

    void exchange(const ExchangeName& name, std::span<const ProcessMessage> outgoing,
                  std::span<const ProcessMessage> incoming) override {
        watchdog_.begin(name);
        requests_.clear();
        senders_.clear();
        std::atomic_thread_fence(std::memory_order_seq_cst);
        for (const ProcessMessage& each : incoming) {
            for_each_piece(each, [&](std::byte* data, int bytes, MPI_Request& request) {
                senders_.push_back(each.process);
                check(in_turn([&] { return MPI_Irecv(data, bytes, MPI_BYTE, each.process, tag, all_, &request); }),
                      "MPI_Irecv");
                watchdog_.count_missing(each.process, 1);
            });
        }
        for (const ProcessMessage& each : outgoing) {
            for_each_piece(each, [&](std::byte* data, int bytes, MPI_Request& request) {
                check(in_turn([&] { return MPI_Isend(data, bytes, MPI_BYTE, each.process, tag, all_, &request); }),
                      "MPI_Isend");
            });
        }
        done_.resize(requests_.size());
        auto left = static_cast<int>(requests_.size());
        MpiPause pause;
        while (left > 0) {
            int count = 0;
            check(in_turn([&] {
                      return MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                                          MPI_STATUSES_IGNORE);
                  }),
                  "MPI_Testsome");
            if (count <= 0) {
                pause();
                continue;
            }
            left -= count;
            for (int i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(done_[static_cast<std::size_t>(i)]);
                if (at < senders_.size()) watchdog_.count_missing(senders_[at], -1);
            }
        }
        std::atomic_thread_fence(std::memory_order_seq_cst);
        watchdog_.end();
    }

    void sum(const ExchangeName& name, std::span<float> values) override {
        watchdog_.begin(name);
        constexpr std::size_t most = INT_MAX;
        for (std::size_t begin = 0; begin < values.size(); begin += most) {
            const auto piece = values.subspan(begin, std::min(most, values.size() - begin));
            MPI_Request request = MPI_REQUEST_NULL;
            check(MPI_Iallreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(piece.size()), MPI_FLOAT, MPI_SUM, all_,
                                 &request),
                  "MPI_Iallreduce");
            int complete = 0;
            for (MpiPause pause;; pause()) {
                check(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
                if (complete != 0) break;
            }
        }
        watchdog_.end();
    }
    void begin_sum(const ExchangeName& name, std::span<float> values) override {
        if (count() > 1) sums_->begin(name, values);
    }
    void finish_sums() override {
        require<DeviceError>(!failed_, "the sums of the processes do not end, since an exchange has failed");
        try {
            sums_->finish();
        } catch (...) {
            failed_ = true;
            throw;
        }
    }

    std::vector<std::byte*> share(std::size_t bytes) override {
        int on_node = 0;
        check(MPI_Comm_size(node_, &on_node), "MPI_Comm_size");
        if (!shares_memory_ || on_node != count()) return {};
        watchdog_.begin({"the allocation of the shared memory"});
        MPI_Info info = MPI_INFO_NULL;
        check(MPI_Info_create(&info), "MPI_Info_create");
        check(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
        void* mine = nullptr;
        check(MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes + line), 1, info, node_, &mine, &window_),
              "MPI_Win_allocate_shared");
        MPI_Info_free(&info);
        watchdog_.end();
        std::vector<std::byte*> parts;
        for (int p = 0; p < count(); ++p) {
            MPI_Aint size = 0;
            int unit = 0;
            void* part = nullptr;
            check(MPI_Win_shared_query(window_, p, &size, &unit, &part), "MPI_Win_shared_query");
            // The same place in each process, whose mappings all begin at a page.
            const std::size_t above = reinterpret_cast<std::uintptr_t>(part) % line;
            parts.push_back(static_cast<std::byte*>(part) + (above == 0 ? 0 : line - above));
        }
        std::memset(parts[static_cast<std::size_t>(number())], 0, bytes);  // by the process that writes there most
        return parts;
    }

private:
    static constexpr int tag = 1;
    static constexpr std::size_t line = 64;

    [[nodiscard]] static int asked(int (*question)(MPI_Comm, int*)) {
        require(mpi_flag(MPI_Initialized) != 0 && mpi_flag(MPI_Finalized) == 0,
                "MPI is not initialised: make an object `const MpiEnvironment mpi;` in main(), before the training");
        int answer = 0;
        check_mpi(question(MPI_COMM_WORLD, &answer), "MPI_Comm_size or MPI_Comm_rank");
        return answer;
    }
    void check(int status, const char* call) {
        if (status == MPI_SUCCESS) [[likely]]
            return;
        failed_ = true;
        watchdog_.end();
        check_mpi(status, call);
    }

    /// MPI counts bytes as int.
    template <class Post>
    void for_each_piece(const ProcessMessage& message, Post&& post) {
        constexpr std::size_t most = std::size_t{1} << 30;
        for (std::size_t begin = 0; begin < message.bytes; begin += most) {
            requests_.push_back(MPI_REQUEST_NULL);
            post(message.data + begin, static_cast<int>(std::min(most, message.bytes - begin)), requests_.back());
        }
    }

    /// The processes of the same machine see whether this one exists.
    [[gnu::cold]] void learn_ids() {
        int on_node = 0;
        check(MPI_Comm_size(node_, &on_node), "MPI_Comm_size");
        std::vector<int> numbers(static_cast<std::size_t>(on_node)), same(numbers.size());
        for (int i = 0; i < on_node; ++i) numbers[static_cast<std::size_t>(i)] = i;
        MPI_Group node = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
        check(MPI_Comm_group(node_, &node), "MPI_Comm_group");
        check(MPI_Comm_group(all_, &world), "MPI_Comm_group");
        check(MPI_Group_translate_ranks(node, on_node, numbers.data(), world, same.data()),
              "MPI_Group_translate_ranks");
        MPI_Group_free(&node);
        MPI_Group_free(&world);
        std::vector<std::int64_t> ids =
            gathered(*this, {"the start of the processes"}, static_cast<std::int64_t>(getpid()));
        for (int p = 0; p < count(); ++p) {
            if (std::find(same.begin(), same.end(), p) == same.end()) ids[static_cast<std::size_t>(p)] = 0;
        }
        watchdog_.know_ids(ids);
    }

    bool shares_memory_, failed_ = false;
    MPI_Comm all_ = MPI_COMM_NULL, node_ = MPI_COMM_NULL;
    MPI_Win window_ = MPI_WIN_NULL;
    std::vector<MPI_Request> requests_;
    /// The sender of each of the first requests, and the requests of a look that are complete.
    std::vector<int> senders_, done_;
    ExchangeWatchdog watchdog_;
    /// Null unless the policy adds.
    std::unique_ptr<MpiSums> sums_;
};

}  // namespace impl

struct MpiConcatMean {
    static constexpr std::string_view name = "MpiConcatMean";
    using Rows = ConcatMean;
    static constexpr Rows rows{};

    /// How long a process may wait for the others: in a step, and for all work that only one of them does between two steps,
    /// such as a checkpoint. Then it ends, with the exit status 75.
    double deadline_seconds = 60;
    /// The folder for the file `process-<number>.fault`, in which a process that ends so writes what it has waited for, and
    /// for whom; it must exist. Empty for standard error alone, which a launcher may lose.
    std::string folder{};
    /// False: rows are exchanged in messages also where the processes could share memory.
    bool shares_memory = true;

    [[nodiscard]] std::shared_ptr<Processes> join() const {
        return std::make_shared<impl::MpiProcesses>(deadline_seconds, folder, shares_memory);
    }
};

struct MpiAllReduce {
    static constexpr std::string_view name = "MpiAllReduce";
    using Rows = ConcatMean;
    static constexpr Rows rows{};
    static constexpr bool sums = true;

    /// As in MpiConcatMean.
    double deadline_seconds = 60;
    std::string folder{};
    /// The minimum size in bytes of a part of the gradient that is summed during the backward pass; 0 for one sum at its end.
    std::int64_t bucket_bytes = std::int64_t{1} << 20;

    /// Throws InvalidArgument for a negative size.
    [[nodiscard]] std::shared_ptr<Processes> join() const {
        require(bucket_bytes >= 0, "MpiAllReduce's bucket_bytes must be 0 or more, not ", bucket_bytes);
        return std::make_shared<impl::MpiProcesses>(deadline_seconds, folder, false, true);
    }
};

}  // namespace cupola::inline CUPOLA_ABI
