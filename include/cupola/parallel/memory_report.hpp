// SPDX-License-Identifier: Apache-2.0
//
// The memory of a training by its use, known and printed before the first step. It includes the tensors, which grow
// with network and batch, but not memory that a program needs once: code, stacks, and the machine code and descriptions
// that oneDNN creates for each kind of operation, a few megabytes whose size oneDNN does not report.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <cupola/core/checked_product.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/plan.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct MemoryReport {
    int devices = 1, replicas = 1;
    /// For a network that is cut: the number of its parts, that of the devices of a group, which has all parts, and the
    /// bytes of the batches in flight and of an evaluation on these devices together. `devices` are then groups, and
    /// `plan` is empty.
    int parts = 1, devices_of_group = 1;
    std::size_t in_flight = 0;
    /// The same where each device has memory of its own: the bytes of each device of a group.
    std::vector<std::size_t> each_device{};
    /// Bytes on each device; `frozen` is the part of `parameters` that is not trained (net/frozen.hpp).
    std::size_t parameters = 0, frozen = 0, optimizer_state = 0, moving_average = 0, buffers = 0;
    /// Where replicas have parameters of their own: the centre, and the state of the optimiser that moves it.
    std::size_t centre = 0, centre_state = 0;
    PlanBytes plan;
    /// Arenas of activations on each device: one, or one per replica if statistics are synchronised.
    int arenas = 1;
    /// Bytes on all devices together.
    std::size_t gradients = 0, average = 0, statistics = 0;
    /// Bytes of one batch per replica on all devices together, if the devices do not use host memory.
    std::size_t batches = 0;
    /// Where replicas do not wait for each other: the bytes of the state to which a failure returns.
    std::size_t saved = 0;
    /// The same in several processes: the bytes of the memory that these share, which process 0 allocates; 0 in the
    /// others.
    std::size_t shared = 0;
    /// Throws OutOfMemory for a total that no computer has.
    [[nodiscard]] std::size_t total() const;
};

[[nodiscard, gnu::cold]] std::string to_string(const MemoryReport& memory);

/// The largest part of the memory, and how to reduce it: "the activations are the largest part: ...".
[[nodiscard, gnu::cold]] std::string largest_part(const MemoryReport& memory);

inline std::size_t MemoryReport::total() const {
    const std::size_t plans = checked_bytes("the activations of a device need",
                                            {arenas, static_cast<std::int64_t>(plan.total())}),
                      each = parameters + centre + centre_state + optimizer_state + moving_average + buffers + plans +
                             in_flight;
    return checked_bytes("the devices need", {devices, static_cast<std::int64_t>(each)}) + gradients + average +
           statistics + batches + saved + shared;
}

inline std::string to_string(const MemoryReport& memory) {
    const bool in_parts = memory.parts > 1 || memory.in_flight > 0;
    std::string result = text("memory: ", ByteCount{memory.total()}, " = ", memory.devices, " x (");
    if (in_parts)
        result = text("memory: ", ByteCount{memory.total()}, " = ", memory.devices,
                      memory.devices == 1 ? " group of " : " groups of ", memory.devices_of_group, " x (");
    // The parts of every training, and those of some trainings.
    const auto add = [&](std::size_t bytes, const char* what) { result += text(ByteCount{bytes}, what); };
    const auto add_any = [&](std::size_t bytes, const char* what) {
        if (bytes != 0) add(bytes, what);
    };
    add(memory.parameters, memory.frozen == 0 ? " parameters + " : " parameters (");
    add_any(memory.frozen, " frozen) + ");
    add_any(memory.centre, " centre + ");
    add_any(memory.centre_state, " its optimiser's state + ");
    add(memory.optimizer_state, " optimiser state + ");
    add_any(memory.moving_average, " moving averages + ");
    add_any(memory.buffers, " running statistics + ");
    if (in_parts) {
        result += text(ByteCount{memory.in_flight}, " batches in ", memory.parts, " parts) + ");
    } else {
        if (memory.arenas > 1) result += text(memory.arenas, " x (");
        add(memory.plan.activations, " activations + ");
        add(memory.plan.saved, " saved + ");
        add(memory.plan.packed, " packed weights + ");
        add(memory.plan.scratch, memory.arenas > 1 ? " scratch)) + " : " scratch) + ");
    }
    add(memory.gradients, " gradients of ");
    result += text(memory.replicas, memory.replicas == 1 ? " replica + " : " replicas + ");
    add_any(memory.statistics, " their statistics + ");
    add_any(memory.batches, " their batches + ");
    add_any(memory.saved, " the state of the last check + ");
    add_any(memory.shared, " the centre of all processes + ");
    add(memory.average, " average");
    for (std::size_t device = 0; device < memory.each_device.size(); ++device)
        result += text(device == 0 ? "; on the devices of a group " : ", ", ByteCount{memory.each_device[device]});
    return result;
}

inline std::string largest_part(const MemoryReport& memory) {
    const auto devices = static_cast<std::size_t>(memory.devices), arenas = static_cast<std::size_t>(memory.arenas);
    const std::size_t plan = devices * (arenas * memory.plan.total() + memory.in_flight),
                      gradients = memory.gradients + memory.average, of_batch = memory.batches + memory.statistics,
                      copies = devices * (memory.parameters + memory.centre + memory.centre_state +
                                          memory.optimizer_state + memory.moving_average + memory.buffers) +
                               memory.saved + memory.shared;
    if (plan + of_batch >= gradients && plan + of_batch >= copies)
        return "the activations are the largest part: choose a smaller batch_size, with more "
               "gradient_accumulation_steps for steps of as many samples, or bfloat16";
    if (gradients >= copies) return "the gradients are the largest part: choose fewer replicas with larger batches";
    return "the parameters and the optimiser's state are the largest part: choose fewer devices, an optimiser with "
           "less state, or a smaller network";
}

}}  // namespace cupola::CUPOLA_ABI
