// SPDX-License-Identifier: Apache-2.0
//
// The memory of a batch of classes in a test's own arrays.
#pragma once

#include <cupola/tensor/batch.hpp>

#include "../standard.hpp"

/// `source` has the columns "input" and "target", and must outlive the result.
template <class Source>
cupola::BatchSpan labelled(const Source& source, float* inputs, std::int32_t* labels) {
    cupola::BatchSpan batch(source.columns());
    batch.set_data(0, reinterpret_cast<std::byte*>(inputs));
    batch.set_data(1, reinterpret_cast<std::byte*>(labels));
    return batch;
}
