// SPDX-License-Identifier: Apache-2.0
//
// Checks before a batch is read: that it has the columns that are read, of the type and the extents that are expected,
// and memory for them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A column that a network or a loss reads, and the name of what reads it, for messages.
struct RequiredColumn {
    ColumnSpec column{};
    std::string_view reader = "the network";
    /// For a column of ids that a network reads: they are in [0, ids). 0 for others.
    std::int64_t ids = 0;
};

/// The column of a network's input.
[[nodiscard]] constexpr RequiredColumn required_input(const Shape& input, ElementType type = ElementType::float32,
                                                      std::int64_t ids = 0) {
    return {{input_column, type, input}, "the network", ids};
}

/// Throws InvalidArgument unless `columns` has each of `required`. `subject` begins the message: "a batch has samples
/// of 6 x 6 x 1, and the network takes 6 x 6 x 3".
void require_columns(std::string_view subject, const Columns& columns, std::span<const RequiredColumn> required);

/// Throws InvalidArgument unless the batch is empty, or has each of `required`, and memory for them.
void require_batch(const BatchView& batch, std::span<const RequiredColumn> required);

/// The same for a source of batches, before the first one is requested: checks its `columns()`, if it has them.
template <class Batches>
void require_batches(const Batches& batches, std::span<const RequiredColumn> required) {
    if constexpr (requires { Columns(batches.columns()); }) {
        require_columns("the batches have", batches.columns(), required);
    }
}

/// The same for the source of a training of `replicas` replicas: checks its `replicas()` too.
template <class Batches>
void require_batches(const Batches& batches, std::span<const RequiredColumn> required, int replicas) {
    require_batches(batches, required);
    if constexpr (requires { static_cast<int>(batches.replicas()); }) {
        const auto given = static_cast<int>(batches.replicas());
        require(given == replicas, "the batches are made for ", given, given == 1 ? " replica" : " replicas",
                ", and the training has ", replicas);
    }
}

}}  // namespace cupola::CUPOLA_ABI

#ifdef CUPOLA_DECL
#include <cupola/tensor/require_batch.ipp>
#endif
