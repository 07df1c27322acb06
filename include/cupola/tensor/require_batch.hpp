// SPDX-License-Identifier: Apache-2.0
//
// Checks before a batch is read: that it has the columns that are read, of the type and the extents that are expected, and
// memory for them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola::inline CUPOLA_ABI {

/// A column that a network or a loss reads, and the name of what reads it, for messages.
struct RequiredColumn {
    ColumnSpec column{};
    std::string_view reader = "the network";
};

/// The column of a network's input.
[[nodiscard]] inline RequiredColumn required_input(const Shape& input) {
    return {{input_column, ElementType::float32, input}, "the network"};
}

/// Throws InvalidArgument unless `columns` has each of `required`. `subject` begins the message: "a batch has samples of
/// 6 x 6 x 1, and the network takes 6 x 6 x 3".
void require_columns(std::string_view subject, const Columns& columns, std::span<const RequiredColumn> required);

/// Throws InvalidArgument unless the batch is empty, or has each of `required`, and memory for them.
void require_batch(const BatchView& batch, std::span<const RequiredColumn> required);

/// The same for a source of batches, before the first one is asked for: checks its `columns()`, if it has them.
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

#ifndef CUPOLA_OPS

CUPOLA_INLINE void require_columns(std::string_view subject, const Columns& columns,
                                   std::span<const RequiredColumn> required) {
    const auto extents = [](const Shape& shape) { return shape.rank == 0 ? "no extents" : to_string(shape); };
    for (const RequiredColumn& each : required) {
        const ColumnSpec& wanted = each.column;
        const ColumnSpec* const given = columns.find(wanted.name);
        if (given == nullptr)
            impl::throw_joined<InvalidArgument>({subject, " no column ", wanted.name, ", which ", each.reader,
                                                 " reads; the columns are: ", names_of(columns)});
        if (given->type == wanted.type && given->shape == wanted.shape) continue;
        if (wanted.name == input_column && given->type == wanted.type) {
            impl::throw_joined<InvalidArgument>({subject, " samples of ", extents(given->shape), ", and ", each.reader,
                                                 " takes ", extents(wanted.shape)});
        }
        impl::throw_joined<InvalidArgument>({subject, " a column ", wanted.name, " of ", to_string(given->type), ' ',
                                             extents(given->shape), ", and ", each.reader, " reads ",
                                             to_string(wanted.type), ' ', extents(wanted.shape)});
    }
}

CUPOLA_INLINE void require_batch(const BatchView& batch, std::span<const RequiredColumn> required) {
    require(batch.size >= 0, "a batch must have 0 or more samples, not ", batch.size);
    if (batch.size == 0) return;
    require_columns("a batch has", batch.columns(), required);
    for (const RequiredColumn& each : required) {
        const auto i = static_cast<std::size_t>(batch.columns().find(each.column.name) - batch.columns().begin());
        require(batch.data(i) != nullptr, "a batch of ", batch.size, " samples has a null pointer to its column ",
                each.column.name);
    }
}

#endif

}  // namespace cupola::inline CUPOLA_ABI
