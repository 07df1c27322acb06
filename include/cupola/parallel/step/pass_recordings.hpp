// SPDX-License-Identifier: Apache-2.0
//
// PassRecordings: what a device's queue has recorded of the passes of each batch of a step. A pass is recorded once per plan, and
// per kind of its beginning and end.
#pragma once

#include <cstddef>
#include <deque>
#include <type_traits>
#include <vector>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Recording>
class PassRecordings {
public:
    [[gnu::cold]] explicit PassRecordings(int devices) : recordings_(static_cast<std::size_t>(devices)) {}

    /// The recording of a batch's pass; `batch` is a BatchToRun of the device. Its address stays.
    template <class Batch>
    [[nodiscard]] Recording& of(int device, const Batch& batch) {
        auto& batches = recordings_[static_cast<std::size_t>(device)];
        if (batch.number >= batches.size()) batches.resize(batch.number + 1);
        auto& passes = batches[batch.number];
        for (Pass& known : passes) {
            if (known.plan == batch.plan && known.packs == batch.packs && known.accumulates == batch.accumulates)
                return known.recording;
        }
        passes.push_back({.plan = batch.plan, .packs = batch.packs, .accumulates = batch.accumulates});
        return passes.back().recording;
    }
    /// Calls visit(recording) for each recording of a device.
    template <class Visit>
    void for_each(int device, Visit&& visit) const {
        for (const auto& batch : recordings_[static_cast<std::size_t>(device)]) {
            for (const Pass& pass : batch) visit(pass.recording);
        }
    }

private:
    struct Pass {
        const void* plan = nullptr;
        bool packs = false, accumulates = false;
        Recording recording{};
    };

    /// Per device, the recordings of each batch of a step, in the order of their numbers.
    std::vector<std::vector<std::deque<Pass>>> recordings_;
};

/// A queue that repeats nothing has nothing to keep per pass.
template <class Recording>
    requires std::is_empty_v<Recording>
class PassRecordings<Recording> {
public:
    explicit PassRecordings(int) {}

    template <class Batch>
    [[nodiscard]] Recording& of(int, const Batch&) {
        return nothing_;
    }
    template <class Visit>
    void for_each(int, Visit&&) const {}

private:
    Recording nothing_{};
};

}}}  // namespace cupola::CUPOLA_ABI::impl
