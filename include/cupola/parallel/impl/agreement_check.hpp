// SPDX-License-Identifier: Apache-2.0
//
// The check, every so many steps, that all devices have the same parameters and that these are finite. The parameters of
// a device are represented by a 64-bit hash of their bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/net/non_finite.hpp>
#include <cupola/ops/training_step.hpp>
#include <cupola/parallel/impl/replica_set.hpp>
#include <cupola/tensor/finite.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// Queues the hash of a device's parameters, and whether they are finite.
template <class D, class T>
void queue_check(ReplicaSet<D, T>& set, int device) {
    using Kernels = typename D::Kernels;
    auto& worker = set.at(device).worker;
    std::byte* const block = set.at(device).queue->status();
    // All copies of the parameters on the device, which are contiguous.
    const std::span<const float> parameters(worker.parameters(),
                                            set.all_elements() * static_cast<std::size_t>(set.copies(device)));
    ops::TrainingStep<Kernels>::hash(worker.context(), parameters, StatusBlock::hash(block));
    ops::TrainingStep<Kernels>::all_finite(worker.context(), parameters, StatusBlock::parameters_finite(block));
}

[[noreturn, gnu::cold]] void throw_update_diverged(std::int64_t step, const std::string& found);

/// Reads the results of queue_check() for a step, and checks the running statistics. Throws ReplicasDiffer, or a
/// DivergedError that names the first parameter or statistic that is not finite. `equal` says whether the devices'
/// parameters have to be the same.
template <class D, class T>
[[gnu::cold]] void check_agreement(ReplicaSet<D, T>& set, std::int64_t step, bool equal,
                                   std::span<const float> running) {
    const auto landed = [&](int device) { return set.at(device).queue->landed(step); };
    if (OtherProcesses* const others = set.others()) {
        int differs = -1;
        for (int device = set.device_count() - 1; device > 0; --device) {
            if (*StatusBlock::hash(landed(device)) != *StatusBlock::hash(landed(0))) differs = device;
        }
        others->require_same_hashes(step, *StatusBlock::hash(landed(0)), running, differs);
    }
    for (int device = 1; equal && device < set.device_count(); ++device) {
        if (*StatusBlock::hash(landed(device)) == *StatusBlock::hash(landed(0))) continue;
        throw ReplicasDiffer(text("after step ", step, " the parameters of device ", device,
                                  " differ from those of device 0: a device computed a different result"),
                             step, device);
    }
    for (int device = 0; device < set.device_count(); ++device) {
        if (*StatusBlock::parameters_finite(landed(device)) != 0) continue;
        // The slow search: padding that is not finite is ignored.
        for (int copy = 0; copy < set.copies(device); ++copy) {
            const std::vector<float> values = set.copied(set.network().parameter_elements, device,
                                                         [&](auto& state) { return state.worker.parameters(copy); });
            const std::string found = non_finite_parameter(set.network().layers, values);
            if (!found.empty()) throw_update_diverged(step, text("parameter ", found));
        }
    }
    if (all_finite(running)) return;
    const std::string found = invalid_buffer(set.network().layers, running);
    if (!found.empty()) throw_update_diverged(step, text("running statistic ", found));
}

}  // namespace impl

#ifndef CUPOLA_OPS

namespace impl {

CUPOLA_INLINE void throw_update_diverged(std::int64_t step, const std::string& found) {
    throw DivergedError(text("after step ", step, " the ", found,
                             ": training diverged in this step or one since the last check; restore an earlier state"),
                        step, -1);
}

}  // namespace impl

#endif

}  // namespace cupola::inline CUPOLA_ABI
