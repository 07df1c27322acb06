// SPDX-License-Identifier: Apache-2.0
//
// The stand-in for CUPTI's records: which work is recorded, with which times, in as many buffers as it needs.
#include "../../../test.hpp"

#include <cuda_runtime.h>
#include <cupti.h>

#include "../control.hpp"

void cupti_test_kernel(int* to) { *to += 1; }

namespace {

struct Seen {
    CUpti_ActivityKind kind;
    std::string name;
    std::uint64_t nanoseconds;
};
std::vector<Seen> seen;
int buffers = 0;
alignas(8) std::array<std::uint8_t, 3 * sizeof(CUpti_ActivityKernel10)> buffer;

void give(std::uint8_t** to, std::size_t* size, std::size_t* most) {
    *to = buffer.data();
    *size = buffer.size();
    *most = 0;
}
void take(CUcontext, std::uint32_t, std::uint8_t* from, std::size_t, std::size_t valid) {
    ++buffers;
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(from, valid, &record) == CUPTI_SUCCESS) {
        const auto& one = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        seen.push_back({one.kind, one.name, one.end - one.start});
    }
}

}  // namespace

TEST_CASE("the kernels, copies and fills that run are recorded while their kind is enabled") {
    int* memory = nullptr;
    CHECK(cudaMalloc(reinterpret_cast<void**>(&memory), sizeof(int)) == cudaSuccess);
    const auto work = [&](int kernels) {
        CHECK(cudaMemset(memory, 0, sizeof(int)) == cudaSuccess);
        const cudaLaunchConfig_t config{1, 1, 0, nullptr, nullptr, 0};
        for (int i = 0; i < kernels; ++i) CHECK(cudaLaunchKernelEx(&config, &cupti_test_kernel, memory) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    };
    CHECK(cuptiActivityFlushAll(1) == CUPTI_ERROR_INVALID_OPERATION);
    CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_ERROR_INVALID_OPERATION);
    CHECK(cuptiActivityRegisterCallbacks(&give, &take) == CUPTI_SUCCESS);
    work(1);  // before: not recorded
    CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
    work(4);
    CHECK(cuptiActivityFlushAll(1) == CUPTI_SUCCESS);
    REQUIRE(seen.size() == 4);
    CHECK(buffers == 2);
    for (const Seen& one : seen) {
        CHECK(one.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        CHECK(one.name == "cupti_test_kernel(int*)");
        CHECK(one.nanoseconds == 5000);
    }
    CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) == CUPTI_SUCCESS);
    work(1);
    CHECK(cuptiActivityFlushAll(1) == CUPTI_SUCCESS);
    REQUIRE(seen.size() == 6);
    CHECK(seen[4].kind == CUPTI_ACTIVITY_KIND_MEMSET);
    CHECK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMSET) == CUPTI_SUCCESS);
    CHECK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
    work(1);
    CHECK(cuptiActivityFlushAll(1) == CUPTI_SUCCESS);
    CHECK(seen.size() == 6);
    CHECK(cudaFree(memory) == cudaSuccess);
}
