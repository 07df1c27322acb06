// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/tensor/require_batch.hpp.
#pragma once

#include <cupola/tensor/require_batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// `given` is null where the columns lack the wanted one.
[[noreturn, gnu::cold]] CUPOLA_DECL void throw_other_column(std::string_view subject, const Columns& columns,
                                                            const ColumnSpec* given, const RequiredColumn& required) {
    const auto extents = [](const Shape& shape) { return shape.rank == 0 ? "no extents" : to_string(shape); };
    const ColumnSpec& wanted = required.column;
    if (given == nullptr)
        throw_joined<InvalidArgument>({subject, " no column ", wanted.name, ", which ", required.reader,
                                       " reads; the columns are: ", names_of(columns)});
    const std::string has = extents(given->shape), reads = extents(wanted.shape);
    if (wanted.name == input_column && given->type == wanted.type)
        throw_joined<InvalidArgument>({subject, " samples of ", has, ", and ", required.reader, " takes ", reads});
    throw_joined<InvalidArgument>({subject, " a column ", wanted.name, " of ", to_string(given->type), ' ', has,
                                   ", and ", required.reader, " reads ", to_string(wanted.type), ' ', reads});
}

}  // namespace impl

CUPOLA_DECL void require_columns(std::string_view subject, const Columns& columns,
                                 std::span<const RequiredColumn> required) {
    for (const RequiredColumn& each : required) {
        const ColumnSpec* const given = columns.find(each.column.name);
        if (given == nullptr || given->type != each.column.type || given->shape != each.column.shape)
            impl::throw_other_column(subject, columns, given, each);
    }
}

CUPOLA_DECL void require_batch(const BatchView& batch, std::span<const RequiredColumn> required) {
    require(batch.size >= 0, "a batch must have 0 or more samples, not ", batch.size);
    if (batch.size == 0) return;
    require_columns("a batch has", batch.columns(), required);
    for (const RequiredColumn& each : required) {
        const std::size_t i = batch.columns().place_of(each.column.name);
        require(batch.data(i) != nullptr, "a batch of ", batch.size, " samples has a null pointer to its column ",
                each.column.name);
    }
}

}}  // namespace cupola::CUPOLA_ABI
