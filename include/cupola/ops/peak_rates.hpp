// SPDX-License-Identifier: Apache-2.0
//
// What a device reaches at most, measured on it: what the roofline of an operation's time is computed from.
#pragma once

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

struct PeakRates {
    /// Floating-point operations a second, a multiply-add being two, of a large matrix product of the activations'
    /// type.
    double operations = 0;
    /// Bytes per second, read and written, of a copy of memory that is in no core's own cache.
    double bytes = 0;
};

namespace ops {

/// `MeasurePeakRates<Device, T>::run(context)`, on the context's own thread; a tenth of a second to a second.
template <class Device, class T>
struct MeasurePeakRates;

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
