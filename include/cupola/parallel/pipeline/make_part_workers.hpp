// SPDX-License-Identifier: Apache-2.0
//
// Makes the parts of the groups of a training, and divides their memory between the devices of a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/plan.hpp>
#include <cupola/parallel/impl/network_info.hpp>
#include <cupola/parallel/memory_report.hpp>
#include <cupola/parallel/pipeline/part_workers.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>
#include <cupola/parallel/replicas/replica_settings.hpp>
#include <cupola/parallel/replicas/worker.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

template <class Device, class T>
std::unique_ptr<DeviceParts<Device, T>> make_part_workers(const GroupSetup<Device, T>& setup) {
    const NetworkInfo<Device, T>& network = setup.network;
    const ReplicaSettings& settings = setup.settings;
    const CutInfo& cut = *network.cut;
    const std::string problem = cut.problem(cut.parts(), setup.batches);
    require(problem.empty(), problem);
    const int of_group = static_cast<int>(cut.devices), devices = settings.devices * of_group,
              first = setup.group * of_group + static_cast<int>(cut.device_of(0, cut.parts()));
    setup.worker.start(first, devices, setup.options);
    auto parts =
        std::make_unique<PartWorkers<Device, T>>(cut, setup.batches, setup.worker.context(), devices, setup.options);
    // A source gives a replica's next batch in the memory of the one before.
    parts->describe({.parameter_elements = network.parameter_elements,
                     .trained_elements = network.trained_elements,
                     .buffer_elements = network.buffer_elements,
                     .status_bytes = setup.status_bytes,
                     .columns = setup.columns,
                     .batch_size = settings.batch_size,
                     .keeps_batches = settings.gradient_accumulation_steps > 1});
    parts->add(network.make, settings.plan_options(settings.batch_size));
    for (const std::int64_t size : settings.other_batch_sizes) parts->add(network.make, settings.plan_options(size));
    for (const std::int64_t size : {settings.batch_size, settings.evaluation_batch_size}) {
        if (size > 0) parts->add_evaluation(network.make, size);
    }
    return parts;
}

template <class Device, class T>
void PartWorkers<Device, T>::find_memory(MemoryReport& memory, std::size_t gradients, std::size_t averages) const {
    std::vector<std::size_t> here = bytes_of_devices();
    const auto add = [&](std::size_t bytes, RowOf rows) {
        const std::vector<std::size_t> each = divided(bytes, rows);
        for (std::size_t d = 0; d < here.size(); ++d) here[d] += each[d];
    };
    const auto devices = static_cast<std::size_t>(memory.devices);
    for (const std::size_t bytes : {memory.parameters, memory.centre}) add(bytes, RowOf::parameters);
    for (const std::size_t bytes :
         {memory.optimizer_state, memory.moving_average, memory.centre_state, gradients, averages / devices})
        add(bytes, RowOf::trained);
    add(memory.buffers, RowOf::buffers);
    // The first device has the rest.
    MemoryReport rest = memory;
    rest.parameters = rest.optimizer_state = rest.moving_average = rest.buffers = rest.centre = rest.centre_state = 0;
    rest.in_flight = rest.gradients = 0;
    rest.average -= averages;
    here[first_device()] += rest.total() / devices;
    memory.each_device.resize(here.size());
    for (std::size_t d = 0; d < here.size(); ++d) memory.each_device[d] = std::max(memory.each_device[d], here[d]);
}

}}}  // namespace cupola::CUPOLA_ABI::impl
