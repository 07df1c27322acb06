// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for CUPTI's records of activity: those of kernels, copies and fills, with the times of the emulated device's clock.
#pragma once

#include <cstddef>
#include <cstdint>

#define CUPTIAPI

using CUcontext = struct CUctx_st*;

enum CUptiResult : int { CUPTI_SUCCESS = 0, CUPTI_ERROR_MAX_LIMIT_REACHED = 12, CUPTI_ERROR_INVALID_OPERATION = 14 };
enum CUpti_ActivityKind : int {
    CUPTI_ACTIVITY_KIND_INVALID = 0,
    CUPTI_ACTIVITY_KIND_MEMCPY = 1,
    CUPTI_ACTIVITY_KIND_MEMSET = 2,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10
};

struct CUpti_Activity {
    CUpti_ActivityKind kind;
};
struct CUpti_ActivityKernel10 {
    CUpti_ActivityKind kind;
    std::uint64_t start, end;  // nanoseconds
    const char* name;
};
struct CUpti_ActivityMemcpy6 {
    CUpti_ActivityKind kind;
    std::uint64_t start, end;
};
using CUpti_ActivityMemset4 = CUpti_ActivityMemcpy6;

using CUpti_BuffersCallbackRequestFunc = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
using CUpti_BuffersCallbackCompleteFunc = void (*)(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                                   std::size_t size, std::size_t valid);

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete);
/// Kernels are recorded while their kind is enabled; work that waits in a stream counts from when it runs.
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind);
/// Gives what was recorded to the callbacks, as many buffers as it needs.
CUptiResult cuptiActivityFlushAll(std::uint32_t flag);
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record);
CUptiResult cuptiGetResultString(CUptiResult result, const char** text);
