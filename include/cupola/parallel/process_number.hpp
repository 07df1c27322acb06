// SPDX-License-Identifier: Apache-2.0
//
// What a training says of its processes without knowing what joins them: their number, and the names of their messages.
#pragma once

#include <cstdint>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The number of a training's processes, and that of this one among them, from 0.
struct ProcessNumber {
    int count = 1, number = 0;
};

/// What is exchanged, for the message about a process that does not respond: "the records of the replicas" of step 12.
/// A step below 0 means no step.
struct ExchangeName {
    std::string_view operation;
    std::int64_t step = -1;
};

}}  // namespace cupola::CUPOLA_ABI
