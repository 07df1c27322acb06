// SPDX-License-Identifier: Apache-2.0
//
// CUPTI's records of activity from what the emulator records of the work that runs.
#include <deque>
#include <set>

#include <cupti.h>

#include "../../standard.hpp"
#include "control.hpp"

namespace {

/// A record of any kind: all have the same size and begin alike.
using Record = CUpti_ActivityKernel10;

struct Activity {
    CUpti_BuffersCallbackRequestFunc request = nullptr;
    CUpti_BuffersCallbackCompleteFunc complete = nullptr;
    std::set<CUpti_ActivityKind> enabled;
    /// The names of records, which live as long as the process, as those of a card do.
    std::set<std::string> names;
};

Activity& activity() {
    static Activity one;
    return one;
}

std::uint64_t nanoseconds(double seconds) {
    constexpr double nanoseconds_per_second = 1e9;
    return static_cast<std::uint64_t>(std::llround(seconds * nanoseconds_per_second));
}

CUpti_ActivityKind kind_of(std::string_view name) {
    if (name == "a copy") return CUPTI_ACTIVITY_KIND_MEMCPY;
    if (name == "a memset") return CUPTI_ACTIVITY_KIND_MEMSET;
    return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
}

}  // namespace

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
    activity().request = request;
    activity().complete = complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (activity().request == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
    if (activity().enabled.empty()) cupola::emulator::record_work();
    activity().enabled.insert(kind);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    activity().enabled.erase(kind);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
    Activity& all = activity();
    if (all.request == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
    std::deque<Record> records;
    for (const cupola::emulator::RecordedWork& work : cupola::emulator::recorded_costs()) {
        constexpr std::string_view before = "the kernel ";
        const std::string name = work.name.starts_with(before) ? work.name.substr(before.size()) : work.name;
        const CUpti_ActivityKind kind = kind_of(name);
        if (!all.enabled.contains(kind)) continue;
        records.push_back({.kind = kind,
                           .start = nanoseconds(work.begun),
                           .end = nanoseconds(work.begun + work.seconds),
                           .name = all.names.insert(name).first->c_str()});
    }
    while (!records.empty()) {
        std::uint8_t* buffer = nullptr;
        std::size_t size = 0, most = 0, count = 0;
        all.request(&buffer, &size, &most);
        for (; !records.empty() && (count + 1) * sizeof(Record) <= size && (most == 0 || count < most); ++count) {
            std::memcpy(buffer + count * sizeof(Record), &records.front(), sizeof(Record));
            records.pop_front();
        }
        all.complete(nullptr, 0, buffer, size, count * sizeof(Record));
        if (count == 0) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    if (!all.enabled.empty()) cupola::emulator::record_work();  // taking what was recorded ended the recording
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
    auto* const end = buffer + valid;
    auto* const next = *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + sizeof(Record);
    if (next >= end) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(next);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
    *text = result == CUPTI_SUCCESS                   ? "CUPTI_SUCCESS"
            : result == CUPTI_ERROR_MAX_LIMIT_REACHED ? "CUPTI_ERROR_MAX_LIMIT_REACHED"
                                                      : "CUPTI_ERROR_INVALID_OPERATION";
    return CUPTI_SUCCESS;
}
