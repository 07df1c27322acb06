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
    /// Bytes per second, read plus written, of a copy of memory that is in no cache.
    double bytes = 0;
    /// Floating-point operations per second on vectors of floats in registers; 0: as `operations`.
    double vector_operations = 0;
    /// What the caches of a level hold together, and the rate of a copy in them, from the nearest one on. 0: no cache.
    struct Cache {
        double size, bytes;
    };
    Cache caches[2]{};
    /// Whether memory is read before it is written, as processors do: a copy transfers three bytes, and counts two.
    bool reads_before_writing = false;
};

namespace ops {

/// `MeasurePeakRates<Device, T>::run(context)` runs on the context's own thread and takes 0.1 to 1 second.
template <class Device, class T>
struct MeasurePeakRates;

}  // namespace ops

}}  // namespace cupola::CUPOLA_ABI
