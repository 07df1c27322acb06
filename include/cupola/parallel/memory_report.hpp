// SPDX-License-Identifier: Apache-2.0
//
// The memory of a training run by its use, which is known and printed before the first step.
#pragma once

#include <cstddef>
#include <string>

#include <cupola/device/device.hpp>
#include <cupola/net/plan.hpp>

namespace cupola::inline CUPOLA_ABI {

struct MemoryReport {
    int devices = 1, replicas = 1;
    /// Bytes on each device.
    std::size_t parameters = 0, optimizer_state = 0, moving_average = 0, buffers = 0;
    PlanBytes plan;
    /// Arenas of activations on each device: one, or one per replica where statistics are synchronised.
    int arenas = 1;
    /// Bytes on all devices together.
    std::size_t gradients = 0, average = 0, statistics = 0;
    /// Bytes of one batch per replica on all devices together, where the host's memory is not the device's.
    std::size_t batches = 0;
    [[nodiscard]] std::size_t total() const;
};

[[nodiscard, gnu::cold]] std::string to_string(const MemoryReport& memory);

#ifndef CUPOLA_OPS

CUPOLA_INLINE std::size_t MemoryReport::total() const {
    return static_cast<std::size_t>(devices) * (parameters + optimizer_state + moving_average + buffers +
                                                static_cast<std::size_t>(arenas) * plan.total()) +
           gradients + average + statistics + batches;
}

CUPOLA_INLINE std::string to_string(const MemoryReport& memory) {
    const auto part = [](std::size_t bytes, const char* what) {
        return bytes == 0 ? std::string() : text(bytes_text(bytes), what, " + ");
    };
    std::string activations =
        text(bytes_text(memory.plan.activations), " activations + ", bytes_text(memory.plan.saved), " saved + ",
             bytes_text(memory.plan.packed), " packed weights + ", bytes_text(memory.plan.scratch), " scratch");
    if (memory.arenas > 1) activations = text(memory.arenas, " x (", activations, ")");
    return text("memory: ", bytes_text(memory.total()), " = ", memory.devices, " x (", bytes_text(memory.parameters),
                " parameters + ", bytes_text(memory.optimizer_state), " optimiser state + ",
                part(memory.moving_average, " moving averages"), part(memory.buffers, " running statistics"),
                activations, ") + ", bytes_text(memory.gradients), " gradients of ", memory.replicas,
                memory.replicas == 1 ? " replica + " : " replicas + ", part(memory.statistics, " their statistics"),
                part(memory.batches, " their batches"), bytes_text(memory.average), " average");
}

#endif

}  // namespace cupola::inline CUPOLA_ABI
