// SPDX-License-Identifier: Apache-2.0
//
// Training over several processes with MPI: `mpirun -n 4 program` (cupola::mpi).
//
//   int main() {
//       const MpiEnvironment mpi;
//       DataParallel<Net, Loss, Sgd, MpiConcatMean, Host> training({.replicas = 4, .averaging = {.folder = "run1"}});
//
// `replicas` counts the replicas of all processes and must be a multiple of the number of processes: process p of P has
// the replicas [p R / P, (p + 1) R / P).
//
//   MpiConcatMean   the mean of all rows in the order of the replicas: the bits of one process with R replicas, for any
//                   P. On one machine the rows are in memory that all processes share, and each process averages its
//                   slice of the columns; otherwise the slices of the rows and of the average are exchanged, which
//                   moves 2 (P - 1) / P times the size of the gradient
//   MpiAllReduce    the sum of the processes' weighted sums by MPI_Iallreduce, in buckets, during the backward pass.
//                   The order of the additions, and so the last bits, depend on P and on the size of the buckets
//
// docs/how-to/processes.md describes the launchers and what happens when a process fails; processes/mpi_environment.hpp
// describes how the other processes continue after one was killed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

// Included first: it reports an error that says what to install if MPI is missing.
#include <cupola/processes/mpi/mpi_calls.hpp>

#include <cupola/core/error.hpp>
#include <cupola/parallel/compressed.hpp>
#include <cupola/parallel/concat_mean.hpp>
#include <cupola/processes/agreement/process_compressed_sums_agreement.hpp>
#include <cupola/processes/agreement/process_rows_agreement.hpp>
#include <cupola/processes/agreement/process_sums_agreement.hpp>
#include <cupola/processes/mpi/compiled.hpp>
#include <cupola/processes/mpi_environment.hpp>
#include <cupola/processes/processes.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The processes of MPI, by a policy's options. `adds`: whether begin_sum() is called. Throws InvalidArgument if MPI is
/// not initialised, and DeviceError and DataError as the start of a training does.
[[nodiscard]] std::shared_ptr<Processes> make_mpi_processes(double deadline_seconds, const std::string& folder,
                                                            bool shares_memory, const MpiEnvironment* environment,
                                                            bool adds = false);

}  // namespace impl

struct MpiConcatMean {
    static constexpr std::string_view name = "MpiConcatMean";
    using Rows = ConcatMean;
    static constexpr Rows rows{};

    /// The maximum time in seconds that a process waits for the others: in a step, and for work that only one of them
    /// does between two steps, such as a checkpoint. After it the process ends with exit status 75.
    double deadline_seconds = 60;
    /// The folder for the file `process-<number>.fault`, in which a process that ends at this deadline writes what it
    /// waited for and which processes were missing. The folder must exist, and each process must be able to write it.
    /// If empty, the message is written to standard error only, which a launcher may lose.
    std::string folder{};
    /// False: rows are exchanged in messages even if the processes could share memory.
    bool shares_memory = true;
    /// The environment that runs the program again after a process was killed. If it is null, or has no `survives`, the
    /// training uses all processes of the job and ends when one is lost. One training at a time.
    const MpiEnvironment* environment = nullptr;

    [[nodiscard]] std::shared_ptr<Processes> join() const {
        return impl::make_mpi_processes(deadline_seconds, folder, shares_memory, environment);
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
    /// The minimum size in bytes of a bucket of the gradient that is summed during the backward pass; 0 for one sum at
    /// its end.
    std::int64_t bucket_bytes = std::int64_t{1} << 18;

    /// Uses all processes of the job; the training ends when one is lost. Throws InvalidArgument for a negative size.
    [[nodiscard]] std::shared_ptr<Processes> join() const {
        require(bucket_bytes >= 0, "MpiAllReduce's bucket_bytes must be 0 or more, not ", bucket_bytes);
        return impl::make_mpi_processes(deadline_seconds, folder, false, nullptr, true);
    }
};

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_MPI_DECL
#include <cupola/processes/mpi/mpi_processes.ipp>
#endif
