// SPDX-License-Identifier: Apache-2.0
//
// The memory that the replicas of a training need, which is added up, and compared with what is available, before any
// is allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/parallel/impl/network_info.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>
#include <cupola/parallel/replicas/replica_placement.hpp>
#include <cupola/parallel/replicas/replica_settings.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Before plans are made: of their memory only an estimate of the activations.
template <class D, class T>
[[nodiscard, gnu::cold]] MemoryReport memory_needed(const NetworkInfo<typename D::Kernels, T>& network,
                                                    const ReplicaSettings& settings, const ReplicaPlacement& placement,
                                                    const ReplicaGradients<typename D::Kernels>& gradients) {
    const std::size_t arena = static_cast<std::size_t>(network.trained_elements) * sizeof(float);
    MemoryReport memory;
    memory.devices = settings.devices;
    memory.replicas = placement.replicas_here();
    if (network.cut != nullptr) {
        memory.parts = network.parts;
        memory.devices_of_group = network.devices_of_group;
    }
    const auto copies = static_cast<std::size_t>(placement.max_copies_per_device());
    const std::size_t copied = arena * copies;
    memory.parameters = static_cast<std::size_t>(network.parameter_elements) * sizeof(float) * copies;
    memory.frozen = memory.parameters - copied;
    memory.optimizer_state =
        checked_bytes("the optimiser's state needs", {static_cast<std::int64_t>(copied), settings.state_arenas});
    if (settings.centre) {
        memory.centre = static_cast<std::size_t>(network.parameter_elements) * sizeof(float);
        memory.centre_state = checked_bytes("the state of the centre's optimiser needs",
                                            {static_cast<std::int64_t>(arena), settings.centre_states});
    }
    memory.moving_average = settings.moving_average ? (settings.centre ? arena : copied) : 0;
    memory.buffers = static_cast<std::size_t>(network.buffer_elements) * sizeof(float);
    if (settings.synchronized) memory.arenas = placement.max_replicas_per_device();
    memory.statistics = checked_bytes(
        "the replicas' running statistics need",
        {static_cast<std::int64_t>(memory.buffers), placement.replicas_here(), settings.gradient_accumulation_steps});
    memory.gradients = gradients.row_bytes();
    memory.average = gradients.average_bytes();
    if (!D::host_memory || settings.landed_steps > 0) {
        const int batches = D::host_memory ? settings.devices : placement.replicas_here();
        std::size_t sample = 0;
        for (const RequiredColumn& each : settings.required) sample += each.column.bytes();
        memory.batches = checked_bytes("the replicas' batches need",
                                       {settings.batch_size, batches, static_cast<std::int64_t>(sample)});
    }
    if (settings.landed_steps > 0) {
        const auto replicas = static_cast<std::size_t>(memory.replicas);
        const auto values = static_cast<std::size_t>(network.parameter_elements) * sizeof(float);
        memory.saved = replicas * (values + static_cast<std::size_t>(settings.state_arenas) * arena) + memory.centre +
                       memory.centre_state + (settings.moving_average ? arena : 0) + memory.buffers;
    }
    memory.average +=
        static_cast<std::size_t>(settings.sums) * sizeof(float) * static_cast<std::size_t>(settings.devices);
    if (network.cut == nullptr)
        memory.plan.activations =
            planned_activation_bytes(network.layers, network.fusion, settings.batch_size, sizeof(T));
    return memory;
}

/// Throws OutOfMemory unless the memory is available on the devices; returns the report.
template <class D>
[[gnu::cold]] const MemoryReport& require_memory(const MemoryReport& memory, const typename D::Options& options) {
    using Kernels = typename D::Kernels;
    std::size_t available = 0, most = 0;
    const int devices = memory.devices * (D::host_memory ? 1 : memory.devices_of_group);
    if constexpr (requires { Kernels::available_memory(options, devices); })
        available = Kernels::available_memory(options, devices);
    else
        available = Kernels::available_memory() * (D::host_memory ? 1 : static_cast<std::size_t>(devices));
    // Where the devices of a group need different memory, the one that needs most has to have it.
    for (const std::size_t each : memory.each_device) most = std::max(most, each * static_cast<std::size_t>(devices));
    require<OutOfMemory>(std::max(memory.total(), most) <= available, memory.replicas,
                         memory.replicas == 1 ? " replica on " : " replicas on ", memory.devices,
                         memory.devices == 1 ? " device" : " devices", " do not fit: ", ByteCount{available},
                         " are available; ", to_string(memory), "; ", largest_part(memory));
    return memory;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
