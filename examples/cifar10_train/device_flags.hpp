// SPDX-License-Identifier: Apache-2.0
//
// Which flags go with --device and with each other.
#pragma once

#include "options.hpp"

namespace cifar10 {

/// Throws InvalidArgument for a flag that means nothing on the device that --device names, or beside the others.
void check_device_flags(const TrainOptions& options);

}  // namespace cifar10
