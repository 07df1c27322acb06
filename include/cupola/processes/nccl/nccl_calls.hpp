// SPDX-License-Identifier: Apache-2.0
//
// NcclCalls: the functions of NCCL, of CUDA and of the clock that the communicators call, as a table that tests
// replace.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/core/thread.hpp>
#include <cupola/processes/watch/exchange_watchdog.hpp>

#if NCCL_VERSION_CODE >= 22700
/// Weak, because the loaded library may be older than the header.
extern "C" [[gnu::weak]] decltype(ncclCommShrink) ncclCommShrink;
#endif

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct NcclCalls {
    /// The version of the loaded library.
    ncclResult_t version(int* version) { return ncclGetVersion(version); }
    ncclResult_t make_id(ncclUniqueId* id) { return ncclGetUniqueId(id); }
    ncclResult_t group_start() { return ncclGroupStart(); }
    ncclResult_t group_end() { return ncclGroupEnd(); }
    ncclResult_t init_rank(ncclComm_t* made, int ranks, const ncclUniqueId& id, int rank, ncclConfig_t* config) {
        return ncclCommInitRankConfig(made, ranks, id, rank, config);
    }
    ncclResult_t state(ncclComm_t of, ncclResult_t* state) { return ncclCommGetAsyncError(of, state); }
    ncclResult_t sum(float* data, std::size_t count, ncclComm_t among, cudaStream_t stream) {
        return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, among, stream);
    }
    ncclResult_t sum(BFloat16* data, std::size_t count, ncclComm_t among, cudaStream_t stream) {
        return ncclAllReduce(data, data, count, ncclBfloat16, ncclSum, among, stream);
    }
    ncclResult_t gather(const std::byte* mine, std::byte* all, std::size_t bytes, ncclComm_t among,
                        cudaStream_t stream) {
        return ncclAllGather(mine, all, bytes, ncclInt8, among, stream);
    }
    ncclResult_t finalize(ncclComm_t of) { return ncclCommFinalize(of); }
    ncclResult_t destroy(ncclComm_t of) { return ncclCommDestroy(of); }
    ncclResult_t abort(ncclComm_t of) { return ncclCommAbort(of); }
    /// Why communicators cannot be shrunk; empty if they can.
    [[nodiscard, gnu::cold]] std::string cannot_shrink() {
#if NCCL_VERSION_CODE >= 22700
        if (&ncclCommShrink != nullptr) return {};
        return "ncclCommShrink needs NCCL 2.27, and the library that the program has loaded is older";
#else
        return "ncclCommShrink needs NCCL 2.27, and the program was compiled for an older one";
#endif
    }
    /// Makes a communicator of all ranks except `lost`. Work that is queued on `of` is aborted.
    ncclResult_t shrink([[maybe_unused]] ncclComm_t of, [[maybe_unused]] std::vector<int>& lost,
                        [[maybe_unused]] ncclComm_t* made, [[maybe_unused]] ncclConfig_t* config) {
#if NCCL_VERSION_CODE >= 22700
        return ncclCommShrink(of, lost.data(), static_cast<int>(lost.size()), made, config, NCCL_SHRINK_ABORT);
#else
        return ncclInvalidUsage;
#endif
    }
    const char* error_string(ncclResult_t result) { return ncclGetErrorString(result); }
    const char* last_error(ncclComm_t of) { return ncclGetLastError(of); }
    cudaError_t device(int* device) { return cudaGetDevice(device); }
    cudaError_t set_device(int device) { return cudaSetDevice(device); }
    cudaError_t query(cudaEvent_t event) {
        const cudaError_t status = cudaEventQuery(event);
        if (status == cudaErrorNotReady) cudaGetLastError();  // clears it: not an error, but CUDA stores it as one
        return status;
    }
    /// Writes a warning to standard error, once per process even if that makes many trainings.
    [[gnu::cold]] void warn(const std::string& message) {
        [[maybe_unused]] static const bool is_said = [&] {
            std::fprintf(stderr, "warning: %s\n", message.c_str());
            return true;
        }();
    }
    double now() { return monotonic_seconds(); }
    /// Between two polls of a wait that does not sleep yet.
    void yield() { std::this_thread::yield(); }
    void pause() {
        const std::timespec short_while{.tv_sec = 0, .tv_nsec = 20'000};
        nanosleep(&short_while, nullptr);
    }
    /// Runs `job` in a detached thread. Throws Error if it cannot be created.
    void run_detached(std::function<void()> job) {
        Thread({.what = "the abort of the communicators"}, std::move(job)).detach();
    }
    /// Ends this process because of a failure of others: writes the message to standard error and to its file in
    /// `folder`.
    [[noreturn, gnu::cold]] void exit_on_peer_failure(int process, const std::string& folder,
                                                      const std::string& message) {
        ExchangeWatchdog::leave(process, folder, message);
    }
    /// Ends the process immediately: destructors and exit handlers would wait for the device.
    [[noreturn, gnu::cold]] void end_process(const std::string& message) {
        const std::string line = text("error: ", message, '\n');
        [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
        std::_Exit(EXIT_FAILURE);
    }
};

/// "2.28.9" for 22809; before NCCL 2.9 the code had four digits (2804).
[[nodiscard, gnu::cold]] inline std::string nccl_version_text(int code) {
    const int unit = code < 10'000 ? 1'000 : 10'000;
    return text(code / unit, '.', code % unit / 100, '.', code % 100);
}

/// Compares the loaded NCCL library with the header that the program was compiled with. Throws DeviceError if the
/// library lacks functions that are called. Otherwise a different version only causes a warning, if `warns`, because
/// the versions of NCCL 2 are compatible. Ranks with different versions are an error of NCCL.
template <class Calls>
[[gnu::cold]] void require_nccl_version(Calls& calls, bool warns) {
    constexpr int first_non_blocking = 21'400, next_major = 30'000;
    int loaded = 0;
    const ncclResult_t status = calls.version(&loaded);
    require<DeviceError>(status == ncclSuccess, "NCCL's ncclGetVersion failed with ", calls.error_string(status));
    if (loaded == NCCL_VERSION_CODE) return;
    const std::string versions = text("the program was compiled for NCCL ", nccl_version_text(NCCL_VERSION_CODE),
                                      " and has loaded NCCL ", nccl_version_text(loaded));
    require<DeviceError>(loaded >= first_non_blocking && loaded < next_major, versions,
                         ": NcclAllReduce needs a version of NCCL 2, from 2.14 on");
    if (warns) calls.warn(versions + ": only what both have is used");
}

}}}  // namespace cupola::CUPOLA_ABI::impl
