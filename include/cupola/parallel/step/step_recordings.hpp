// SPDX-License-Identifier: Apache-2.0
//
// StepRecordings: what a device's queue has recorded of the passes of each batch of a step, or of its update. A pass is
// recorded once per plan, and per kind of its beginning and end. The update is recorded once per plan whose weights it
// packs, and per variant; its constants are written before the step. A device whose queue repeats work includes this
// header beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/device/queue.hpp>
#include <cupola/optim/optimizer.hpp>
#include <cupola/optim/update_parameters.hpp>
#include <cupola/parallel/replicas/replicas.hpp>
#include <cupola/parallel/replicas/status.hpp>
#include <cupola/parallel/step/replica_passes.hpp>
#include <cupola/parallel/step/step_functions.hpp>
#include <cupola/parallel/step/step_update.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Recording>
class StepRecordings {
public:
    [[gnu::cold]] explicit StepRecordings(int devices) : recordings_(static_cast<std::size_t>(devices)) {}

    /// The recording of the passes of batch `number` of the device, or of the update, by a plan and a variant. Its
    /// address stays.
    [[nodiscard]] Recording& of(int device, std::size_t number, const void* plan, int variant) {
        auto& batches = recordings_[static_cast<std::size_t>(device)];
        if (number >= batches.size()) batches.resize(number + 1);
        auto& passes = batches[number];
        for (Pass& known : passes) {
            if (known.plan == plan && known.variant == variant) return known.recording;
        }
        passes.push_back({.plan = plan, .variant = variant});
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
        int variant = 0;
        Recording recording{};
    };

    /// Per device, the recordings of each batch of a step, in the order of their numbers.
    std::vector<std::vector<std::deque<Pass>>> recordings_;
};

/// The reason why work of a step is queued again that could have been repeated; empty if all of it is repeated.
/// `passes` and `update` are the parts of a step that have recordings.
template <class D, class T, class Passes, class Update>
[[nodiscard, gnu::cold]] std::string why_not_repeated(const StepFunctions<D>& functions, const Replicas<D, T>& replicas,
                                                      const Passes& passes, const Update& update) {
    if (replicas.network().cut != nullptr)
        return "the passes: those of a network in parts are queued anew in each step";
    if (!functions.repeats_update) return "the update: the optimiser does not declare that it can be captured";
    std::string why;
    const auto look = [&](const auto& recording, const char* of) {
        if (const std::string refused = recording.refused(); why.empty() && !refused.empty()) why = of + refused;
    };
    for (int device = 0; device < replicas.placement().device_count(); ++device) {
        passes.for_each_recording(device, [&](const auto& pass) { look(pass, "the passes of a replica: "); });
        update.for_each_recording(device, [&](const auto& one) { look(one, "the update: "); });
    }
    return why;
}

/// See DataParallel::launches_description().
template <class D, class T>
[[nodiscard, gnu::cold]] std::string launches_text(Replicas<D, T>& replicas) {
    const auto& counted = replicas.at(0).queue->launches();
    // For a network in parts not all launches are counted.
    if (replicas.network().cut != nullptr || counted.all == 0 || !counted.captured) return {};
    return text("a step queues ", counted.all, " kernels and copies, ", counted.in_graphs, " of them in ",
                counted.graphs, counted.graphs == 1 ? " graph" : " graphs");
}

template <class D, class T>
void StepUpdate<D, T>::queue_recorded(int device, std::int64_t step) {
    Queue& queue = begin(device);
    auto& worker = replicas_.at(device).worker;
    // The plan whose weights the update packs again; the next pass packs them where an agreement on a centre may change
    // the parameters after the update.
    const bool packs = functions_.repeats_update && !replicas_.settings().centre;
    Plan<Kernels, T>* const packed = packs ? worker.plans().last_packing() : nullptr;
    queue.queue(recordings_.of(device, 0, packed, agreement_.variant_of_update(step)), functions_.repeats_update,
                [this, device, step, packed] {
                    reduce(device, step);
                    apply(device, step);
                    // In the kernel of the update, where the device can join them.
                    auto& of_device = replicas_.at(device).worker;
                    if (packed != nullptr)
                        packed->prepare(of_device.context(), of_device.parameters(), of_device.buffers(), nullptr,
                                        Packing::trained);
                    update_loss_scale(device, step);
                    if constexpr (requires(Queue& last) { last.land_with_update(); }) {
                        if (functions_.repeats_update) replicas_.at(device).queue->land_with_update();
                    }
                });
    if (packed != nullptr) worker.plans().set_packed(worker.parameters());
}

/// Writes the constants of a step's update, in as many versions as steps before it may be skipped.
template <class D, class T>
void StepUpdate<D, T>::write_constants(int device, std::int64_t step) {
    Queue& queue = *replicas_.at(device).queue;
    const ConstantsVersions versions{
        .counter = &step_status(queue.status())->loss_scale.skipped_steps, .base = skipped_, .count = 1 + in_flight_};
    const auto write_all = [&](auto& to, int version) {
        const auto write = [&to](std::string_view type, std::span<const std::byte> bytes) { to.write(type, bytes); };
        ConstantsWriter writer(write);
        write_constants_of(device, step, step - skipped_ - version, writer);
    };
    if constexpr (requires { queue.set_constants(step, versions, write_all, true); }) {
        queue.set_constants(step, versions, write_all, agreement_.has_force(step));
    } else {
        queue.set_constants(step, versions, write_all);
    }
}

/// The constants that update_copies of this number uses, in its order.
template <class D, class T>
void StepUpdate<D, T>::write_constants_of(int device, std::int64_t step, std::int64_t number, ConstantsWriter& to) {
    for (int copy = 0; copy < replicas_.placement().copies(device); ++copy) {
        const Update<Kernels> update = update_of(device, copy, step, number);
        const ElasticForce force = agreement_.force(device, copy, step);
        functions_.write_constants(update, agreement_.has_force(step) ? &force : nullptr, to);
        if (averages_copies()) to.write(functions_.moving_average.constants(number + 1));
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
