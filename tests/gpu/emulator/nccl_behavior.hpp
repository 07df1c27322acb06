// SPDX-License-Identifier: Apache-2.0
//
// The settings of the stand-in for NCCL: calls that are in progress, late or never return, and checks of misuse. Each
// setting applies to the communicators of this process.
#pragma once

#include "../../standard.hpp"

namespace cupola::emulator {

enum class NcclAbort {
    returns,
    /// ncclCommAbort returns once every rank that is not dead has called it. A thread that calls it for several ranks
    /// outside a group therefore never returns.
    waits_for_all_ranks,
    /// ncclCommAbort never returns.
    hangs,
    /// ncclCommAbort returns after abort_seconds.
    slow,
};

struct NcclBehavior {
    /// How often ncclCommGetAsyncError returns ncclInProgress after each call. A collective is on its stream only after
    /// the next result.
    int in_progress = 0;
    /// In progress for ever.
    static constexpr int for_ever = -1;
    /// How often a stream tries a collective without effect after all ranks have called it.
    int vain_tries = 0;
    /// Element i of n is added in the order of a ring that begins with rank i * ranks / n instead of rank 0: the rounding of
    /// a sum then depends on the position of the element in the call.
    bool ring_order = false;
    NcclAbort abort = NcclAbort::returns;
    double abort_seconds = 0;
    /// The process is killed by the call of this number, from 1 on, of a communicator in a group; 0 for none.
    int dies_in_group_at = 0;
    /// The version of the library that ncclGetVersion returns; 0 for that of the header.
    int version = 0;
    /// The name of a buffer, the same on each rank: "element 40 of the gradient". If it is set, ranks that pass buffers of
    /// different names to one collective are an error, which NCCL itself does not detect.
    std::function<std::string(const void*)> name_of_buffer{};
};

/// Sets the behavior of the communicators of this process during its lifetime. The destructor makes all hanging calls return.
class NcclBehaves {
public:
    explicit NcclBehaves(NcclBehavior behavior);
    NcclBehaves(const NcclBehaves&) = delete;
    NcclBehaves& operator=(const NcclBehaves&) = delete;
    ~NcclBehaves();
};

/// Whether the other ranks receive ncclRemoteError after the death of a rank, or wait for it forever.
enum class NcclDeath { noticed, silent };

/// From now on the communicators of that rank in this process do nothing. They can still be aborted.
void nccl_rank_dies(int rank, NcclDeath death);

/// The number of calls of ncclCommAbort that have not returned.
[[nodiscard]] int nccl_aborts_that_hang();
/// The number of communicators that were created and neither destroyed nor aborted.
[[nodiscard]] int nccl_open_communicators();
/// The number of calls of each kind since the start of the process. `groups` are those that have calls other than aborts; a call outside a
/// group is one. `host_seconds` is what they have cost the host, over all threads.
struct NcclCallCounts {
    int unique_ids = 0, inits = 0, all_reduces = 0, finalizes = 0, destroys = 0, aborts = 0, grouped_aborts = 0,
        shrinks = 0, groups = 0;
    double host_seconds = 0;
};
[[nodiscard]] NcclCallCounts nccl_call_counts();
/// The message of a wrong call of this process since the last call of this function; empty if there was none.
[[nodiscard]] std::string take_nccl_misuse();

}  // namespace cupola::emulator
