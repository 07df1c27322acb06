// SPDX-License-Identifier: Apache-2.0
//
// Compares the outputs and columns that a metric reads with the network and its losses, at compile time.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/loss/several_outputs.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Sets `result` if loss k of the data reads `column`. (A function, not a lambda: nvcc rejects a template member of a
/// dependent type in a generic lambda.)
template <class Data, std::size_t k>
constexpr void look_for_target(const NetworkOutputs& outputs, std::string_view column, ColumnSpec& result) {
    using Loss = DataLossAt<Data, k>;
    constexpr const LossEntry& entry = DataLosses<Data>::entries[k];
    if constexpr (requires(const Shape& output) {
                      typename Loss::Target;
                      Loss::target(output);
                  }) {
        const std::size_t output = outputs.find(entry.output);
        if (entry.column == column && output < outputs.size())
            result = {target_column, element_type_of<typename Loss::Target>, Loss::target(outputs[output].shape)};
    }
}

template <class Data, std::size_t... k>
[[nodiscard]] constexpr ColumnSpec look_for_target(const NetworkOutputs& outputs, std::string_view column,
                                                   std::index_sequence<k...>) {
    ColumnSpec result;
    (look_for_target<Data, k>(outputs, column, result), ...);
    return result;
}

/// The column that the loss of the data reads; if there are several losses, the column of the one that reads `column`,
/// or a column without extents if none does.
template <class Data>
[[nodiscard]] consteval ColumnSpec target_of(std::span<const LayerInfo> layers, std::string_view column) {
    return look_for_target<Data>(NetworkOutputs(layers), column,
                                 std::make_index_sequence<DataLosses<Data>::entries.size()>());
}

/// A metric of one output among several: see metrics::At.
template <class M>
concept NamesOutput = requires {
    { M::output } -> std::convertible_to<std::string_view>;
    { M::column } -> std::convertible_to<std::string_view>;
    typename M::OfOutput;
};
template <class M>
concept HasMetricDiagnostic = requires(const Shape& output, const ColumnSpec& target) {
    { M::diagnostic(output, target) } -> std::same_as<CompileTimeMessage>;
};

/// The error in the column that a metric of an output reads; empty if there is none.
[[nodiscard]] constexpr CompileTimeMessage column_diagnostic(std::span<const LayerInfo> layers,
                                                             std::span<const LossEntry> losses, std::string_view output,
                                                             std::string_view column) {
    CompileTimeMessage message, names;
    bool found = false;
    const auto add = [&](std::string_view name) {
        found = found || name == column;
        names << (names.empty() ? "" : ", ") << name;
    };
    add(input_column);
    for (const LayerInfo& layer : layers) {
        if (!layer.column.empty()) add(layer.column);
    }
    for (const LossEntry& loss : losses) add(loss.column);
    if (found) return message;
    message << "a metric of the output " << output << " reads the column " << column
            << ", but the network and its losses read: ";
    message << std::string_view(names.characters, names.size) << ": the third argument of metrics::At is the column";
    return message;
}

template <class M>
[[nodiscard]] consteval bool reads_all_outputs() {
    if constexpr (requires { static_cast<bool>(M::reads_all_outputs); })
        return M::reads_all_outputs;
    else
        return false;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
