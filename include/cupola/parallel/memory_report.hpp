// SPDX-License-Identifier: Apache-2.0
//
// The memory of a training run by what it holds: known, and printed, before the first step.
#pragma once

#include <cstddef>
#include <string>

#include <cupola/device/device.hpp>
#include <cupola/net/plan.hpp>

namespace cupola::inline CUPOLA_ABI {

struct MemoryReport {
    int devices = 1, replicas = 1;
    /// On each device.
    std::size_t parameters = 0, optimizer_state = 0;
    PlanBytes plan;
    /// In all.
    std::size_t gradients = 0, average = 0;
    [[nodiscard]] std::size_t total() const {
        return static_cast<std::size_t>(devices) * (parameters + optimizer_state + plan.total()) + gradients + average;
    }
};

[[nodiscard, gnu::cold]] inline std::string to_string(const MemoryReport& memory) {
    return text("memory: ", bytes_text(memory.total()), " = ", memory.devices, " x (", bytes_text(memory.parameters),
                " parameters + ", bytes_text(memory.optimizer_state), " optimiser state + ",
                bytes_text(memory.plan.activations), " activations + ", bytes_text(memory.plan.saved), " saved + ",
                bytes_text(memory.plan.packed), " packed weights + ", bytes_text(memory.plan.scratch), " scratch) + ",
                bytes_text(memory.gradients), " gradients of ", memory.replicas, " replicas + ", bytes_text(memory.average),
                " average");
}

}  // namespace cupola::inline CUPOLA_ABI
