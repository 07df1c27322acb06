// SPDX-License-Identifier: Apache-2.0
//
// The kernels that a GPU runs and their times, recorded by CUPTI. The kernels of captured work are included, with the same
// gaps between them as in a training.
#pragma once

#include <cxxabi.h>
#include <mutex>

#include <cupti.h>

#include <cupola/core/error.hpp>

#include "../../../standard.hpp"

namespace bench {

/// Records from start() to stop(); at most once per process.
class KernelTimes {
public:
    struct Sum {
        std::int64_t count = 0;
        double seconds = 0;
    };

    static void start() {
        check(cuptiActivityRegisterCallbacks(&give_buffer, &take_buffer), "cuptiActivityRegisterCallbacks");
        for (const CUpti_ActivityKind kind : kinds) check(cuptiActivityEnable(kind), "cuptiActivityEnable");
    }
    /// Called when the GPU has completed all work.
    static void stop() {
        check(cuptiActivityFlushAll(1), "cuptiActivityFlushAll");
        for (const CUpti_ActivityKind kind : kinds) check(cuptiActivityDisable(kind), "cuptiActivityDisable");
    }

    /// One line of JSON: the time from the start of the first kernel to the end of the last, the part of it in which a kernel
    /// ran, and the sum per name, all divided by `steps`.
    static void print(int steps) {
        std::sort(spans.begin(), spans.end());
        std::uint64_t busy = 0, until = 0;
        for (const auto& [begin, end] : spans) {
            if (end <= until) continue;
            busy += end - std::max(begin, until);
            until = end;
        }
        const double whole = spans.empty() ? 0 : static_cast<double>(until - spans.front().first);
        std::printf("{\"steps\": %d, \"seconds\": %.9f, \"busy\": %.9f, \"kernels\": [", steps, 1e-9 * whole / steps,
                    1e-9 * static_cast<double>(busy) / steps);
        const char* before = "";
        for (const auto& [name, sum] : sums) {
            std::printf("%s{\"name\": \"%s\", \"count\": %.3f, \"seconds\": %.9f}", before, readable(name).c_str(),
                        static_cast<double>(sum.count) / steps, sum.seconds / steps);
            before = ", ";
        }
        std::printf("]}\n");
    }

    /// The mean time in seconds of the kernels in whose names `part` is; 0 if none ran.
    static double mean(std::string_view part) {
        Sum all;
        for (const auto& [name, sum] : sums) {
            if (name.find(part) == std::string::npos) continue;
            all.count += sum.count;
            all.seconds += sum.seconds;
        }
        return all.count == 0 ? 0 : all.seconds / static_cast<double>(all.count);
    }

private:
    static constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                                   CUPTI_ACTIVITY_KIND_MEMSET};
    static constexpr std::size_t buffer_bytes = std::size_t{1} << 22, buffer_alignment = 8;

    static void check(CUptiResult status, const char* call) {
        const char* words = "";
        if (status != CUPTI_SUCCESS) cuptiGetResultString(status, &words);
        cupola::require<cupola::DeviceError>(status == CUPTI_SUCCESS, call, " failed: ", words);
    }
    static std::string readable(const std::string& name) {
        int status = 0;
        char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
        std::string result = status == 0 ? text : name;
        std::free(text);
        std::replace(result.begin(), result.end(), '"', '\'');
        std::replace(result.begin(), result.end(), '\\', '/');
        return result;
    }
    static void add(const std::string& name, std::uint64_t begin, std::uint64_t end) {
        const std::scoped_lock lock(mutex);
        spans.emplace_back(begin, end);
        Sum& sum = sums[name];
        ++sum.count;
        sum.seconds += 1e-9 * static_cast<double>(end - begin);
    }

    static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
        *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(buffer_alignment, buffer_bytes));
        *size = buffer_bytes;
        *max_records = 0;
    }
    static void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
        CUpti_Activity* record = nullptr;
        while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
            if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
                const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
                add(kernel.name, kernel.start, kernel.end);
            } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
                const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
                add("a copy", copy.start, copy.end);
            } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
                const auto& set = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
                add("a fill", set.start, set.end);
            }
        }
        std::free(buffer);
    }

    static inline std::mutex mutex;
    static inline std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
    static inline std::map<std::string, Sum> sums;
};

}  // namespace bench
