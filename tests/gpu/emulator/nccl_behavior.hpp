// SPDX-License-Identifier: Apache-2.0
//
// The settings of the stand-in for NCCL: to be in progress, late, without an end, or misused. Each setting applies to this
// process's communicators.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace cupola::emulator {

enum class NcclAbort {
    returns,
    /// ncclCommAbort returns once every rank that is not dead has called it. One that is called outside a group by the
    /// thread that is to call the others too therefore never returns.
    waits_for_all_ranks,
    /// It never returns.
    hangs,
};

struct NcclBehavior {
    /// How often ncclCommGetAsyncError answers ncclInProgress after each call. A collective is on its stream with the
    /// answer after those, and not before.
    int in_progress = 0;
    /// How often the stream tries a collective in vain after all ranks have come to it.
    int vain_tries = 0;
    /// Element i of n is added in the order of a ring, beginning with rank i * ranks / n, and not from rank 0: how a sum
    /// is rounded then depends on where its elements lie in the call.
    bool ring_order = false;
    NcclAbort abort = NcclAbort::returns;
    /// What a buffer is called, the same on each rank: "element 40 of the gradient". Ranks that give different buffers
    /// to one collective are an error then, of which NCCL itself knows nothing.
    std::function<std::string(const void*)> name_of_buffer{};
};

/// While it lives, the communicators of this process behave so. Its end lets every call return that hangs.
class NcclBehaves {
public:
    explicit NcclBehaves(NcclBehavior behavior);
    NcclBehaves(const NcclBehaves&) = delete;
    NcclBehaves& operator=(const NcclBehaves&) = delete;
    ~NcclBehaves();
};

/// Whether the other ranks get ncclRemoteError when one has died, or wait for it without end.
enum class NcclDeath { noticed, silent };

/// From now on, this process's communicators of that rank do nothing more. They can still be aborted.
void nccl_rank_dies(int rank, NcclDeath death);

/// Calls that have not returned, each of ncclCommAbort.
[[nodiscard]] int nccl_aborts_that_hang();
/// Communicators that were made and neither destroyed nor aborted.
[[nodiscard]] int nccl_open_communicators();
/// How many calls were made of each kind since the process began.
struct NcclCallCounts {
    int unique_ids = 0, inits = 0, all_reduces = 0, finalizes = 0, destroys = 0, aborts = 0, grouped_aborts = 0;
};
[[nodiscard]] NcclCallCounts nccl_call_counts();
/// What was wrong with a call of this process since this was last asked; empty where nothing was.
[[nodiscard]] std::string take_nccl_misuse();

}  // namespace cupola::emulator
