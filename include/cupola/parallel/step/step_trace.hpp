// SPDX-License-Identifier: Apache-2.0
//
// StepTrace: the names of the operations of a step in the order in which each device's thread queues them, noted before
// they are queued. The order is the same for every device type, as a test checks.
//
// It is not the order of execution. On a device that computes later the work of several steps may be queued before any
// of it runs. The forward pass, the loss and the backward pass of a batch are one piece of work, which a device may
// record once and launch as a whole: their names are noted together, before it is queued, and calls within it leave no
// name. That queued work runs in this order is tested by its results.
#pragma once

#include <cupola/core/function_ref.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Called with each name, by the thread of that device.
using StepTrace = FunctionRef<void(int device, const char* name)>;

}}}  // namespace cupola::CUPOLA_ABI::impl
