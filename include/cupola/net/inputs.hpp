// SPDX-License-Identifier: Apache-2.0
//
// The inputs of a network as columns of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>
#include <cupola/tensor/finite.hpp>
#include <cupola/tensor/ids.hpp>
#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The columns that a network reads: "input", and those of each FromInput in the order of the list.
[[nodiscard, gnu::cold]] FixedArray<RequiredColumn> required_inputs(std::span<const LayerInfo> layers);

/// Describes the first value of a column in host memory that is infinite or not a number: "sample 2 is nan at [0, 5]"
/// for the column "input", and "column age of sample 2 is nan at [3]" for others. Empty if all are finite.
[[nodiscard, gnu::cold]] std::string non_finite_input(const ColumnSpec& column, std::span<const float> values);

/// Throws InvalidArgument unless a batch in host memory has the columns of a network's inputs, their values are finite,
/// and their ids in range.
[[gnu::cold]] void require_inputs(const BatchView& batch, std::span<const RequiredColumn> inputs);

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/net/inputs.ipp>
#endif
