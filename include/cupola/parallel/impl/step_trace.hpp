// SPDX-License-Identifier: Apache-2.0
//
// StepTrace: the names of the operations that a device queues in a step, in order. They are the same for every device
// type, as a test checks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

class StepTrace {
public:
    explicit StepTrace(int devices) : names_(static_cast<std::size_t>(devices)) {}

    /// Called by the thread of that device.
    void note(int device, const char* name) { names_[static_cast<std::size_t>(device)].emplace_back(name); }
    [[nodiscard]] const std::vector<std::string>& of(int device) const {
        return names_[static_cast<std::size_t>(device)];
    }

private:
    std::vector<std::vector<std::string>> names_;
};

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
