// SPDX-License-Identifier: Apache-2.0
//
// The rates of a `Cuda` that is none: any number.
#pragma once

#include <cupola/device/cuda.hpp>
#include <cupola/ops/machine_rates.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace ops {

template <class T>
struct MeasureRates<Cuda, T> {
    static MachineRates run(const CudaContext&) { return {.operations = 1e12, .bytes = 1e11}; }
};

}  // namespace ops

}  // namespace cupola::inline CUPOLA_ABI
