// SPDX-License-Identifier: Apache-2.0
//
// One replica's samples of one step.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

/// `size` samples, channels last, one after another, in the device's memory, with one label each. Owns nothing: the
/// memory stays valid and unchanged until the step that takes it has returned.
struct BatchView {
    const float* samples = nullptr;
    const std::int32_t* labels = nullptr;
    std::int64_t size = 0;
};

}  // namespace cupola::inline CUPOLA_ABI
