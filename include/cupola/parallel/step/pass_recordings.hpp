// SPDX-License-Identifier: Apache-2.0
//
// PassRecordings: what a device's queue has recorded of the passes of each batch of a step. A pass is recorded once per
// plan, and per kind of its beginning and end. A device whose queue repeats work includes this header beside it.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/step/step_functions.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Recording>
class PassRecordings {
public:
    [[gnu::cold]] explicit PassRecordings(int devices) : recordings_(static_cast<std::size_t>(devices)) {}

    /// The recording of a batch's pass; `batch` is a BatchPass of the device. Its address stays.
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

/// The reason why work of a step is queued again that could have been repeated; empty if all of it is repeated.
/// `passes` and `update` are the parts of a step that have recordings.
template <class D, class Passes, class Update>
[[nodiscard, gnu::cold]] std::string why_not_repeated(const StepFunctions<D>& functions, int devices,
                                                      const Passes& passes, const Update& update) {
    if (!functions.repeats_update) return "the update: the optimiser does not declare that it can be captured";
    std::string why;
    const auto look = [&](const auto& recording, const char* of) {
        if (const std::string refused = recording.refused(); why.empty() && !refused.empty()) why = of + refused;
    };
    for (int device = 0; device < devices; ++device) {
        passes.for_each_recording(device, [&](const auto& pass) { look(pass, "the passes of a replica: "); });
        update.for_each_recording(device, [&](const auto& one) { look(one, "the update: "); });
    }
    return why;
}

/// See DataParallel::launches_description().
template <class D, class T>
[[nodiscard, gnu::cold]] std::string launches_text(Replicas<D, T>& replicas) {
    const auto& counted = replicas.at(0).queue->launches();
    if (counted.all == 0 || !counted.captured) return {};
    return text("a step queues ", counted.all, " kernels and copies, ", counted.in_graphs, " of them in ",
                counted.graphs, counted.graphs == 1 ? " graph" : " graphs");
}

}}}  // namespace cupola::CUPOLA_ABI::impl
