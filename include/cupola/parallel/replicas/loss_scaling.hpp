// SPDX-License-Identifier: Apache-2.0
//
// Where the devices of a training keep the state of its loss scale, and what ends a step that they may skip.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/replicas/replicas.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The loss scale of the step in the device's memory; null if it is constant.
template <class D, class T>
[[nodiscard]] const float* scale_on_device(Replicas<D, T>& replicas, int device) {
    if (!replicas.settings().loss_scale.dynamic) return nullptr;
    return &replicas.at(device).status()->loss_scale.scale;
}

/// Whether a step of a device has failed, in its memory, where that is not the same as not healthy; null otherwise.
template <class D, class T>
[[nodiscard]] const std::int32_t* failed_on_device(Replicas<D, T>& replicas, int device) {
    return replicas.settings().may_skip() ? &replicas.at(device).status()->failed : nullptr;
}

/// The end of a device's step that it may skip. `divisor` is that of the mean.
template <class D, class T>
[[nodiscard]] ops::LossScaleUpdate loss_scale_update(Replicas<D, T>& replicas, int device, const float* divisor) {
    auto& state = replicas.at(device);
    const ReplicaSettings& settings = replicas.settings();
    StepStatus* const status = state.status();
    std::byte* const block = state.queue->status();
    const auto batches = static_cast<std::int64_t>(state.reports().size());
    return {.rule = settings.loss_scale,
            .skips_without_weight = settings.skips_without_weight,
            .state = &status->loss_scale,
            .healthy = &status->healthy,
            .failed = &status->failed,
            .divisor = divisor,
            .reports = state.layout.report(block, 0),
            .report_count = batches * static_cast<std::int64_t>(1 + settings.losses),
            .ids = state.layout.bad_id(block, 0),
            .id_count = settings.reads_ids() ? batches : 0,
            .not_finite = state.layout.not_finite(block, 0),
            .replicas = settings.replicas};
}

}}}  // namespace cupola::CUPOLA_ABI::impl
