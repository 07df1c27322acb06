// SPDX-License-Identifier: Apache-2.0
//
// The peak rates of a device, measured on it: the roofline of an operation's time is computed from them.
#pragma once

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct PeakRates {
    /// Floating-point operations per second, a multiply-add counting as two, of a large matrix product of the
    /// activations' type.
    double operations = 0;
    /// Bytes per second, read plus written, of a copy of memory that is in no core's private cache.
    double bytes = 0;
};

namespace ops {

/// `MeasurePeakRates<Device, T>::run(context)` runs on the context's own thread and takes 0.1 to 1 second.
template <class Device, class T>
struct MeasurePeakRates;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
