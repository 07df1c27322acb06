// SPDX-License-Identifier: Apache-2.0
//
// The names of the operations of a step, as trace_steps() calls with them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

/// A StepTrace that keeps the names, per device.
class StepNames {
public:
    explicit StepNames(int devices) : names_(static_cast<std::size_t>(devices)) {}

    void operator()(int device, const char* name) { names_[static_cast<std::size_t>(device)].emplace_back(name); }
    [[nodiscard]] const std::vector<std::string>& of(int device) const {
        return names_[static_cast<std::size_t>(device)];
    }

private:
    std::vector<std::vector<std::string>> names_;
};
