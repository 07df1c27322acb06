// SPDX-License-Identifier: Apache-2.0
//
// How a training identifies its processes and their exchanges, independent of the engine that connects them.
#pragma once

#include <cstdint>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Defined in processes/processes.hpp: the processes of a training, and an engine that also moves gradients. A training
/// of one process has neither.
class ProcessGroup;
class Processes;

/// The number of processes of a training, and the number of this one among them, from 0.
struct ProcessNumber {
    int count = 1, number = 0;
};

/// The name of an exchange, for errors about a process that does not respond: "the records of the replicas" of step 12.
/// A negative step means no step.
struct ExchangeName {
    std::string_view operation;
    std::int64_t step = -1;
};

}}  // namespace cupola::CUPOLA_ABI
