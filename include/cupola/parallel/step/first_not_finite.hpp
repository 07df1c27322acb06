// SPDX-License-Identifier: Apache-2.0
//
// Where a number that is not finite first appears in a step; the slow search, for the step that failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/net/inputs.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/replicas/worker.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Throws the error of a training whose loss or gradient is not finite, as `what` says; `where` is the search's result.
[[noreturn, gnu::cold]] void throw_diverged(std::int64_t step, const std::string& what, const std::string& where,
                                            int replica);

/// A result of `first_not_finite` for a message.
[[nodiscard, gnu::cold]] std::string shown_origin(std::string found);

/// "the output of layer 3 (norm1, LocalResponseNorm<4>) is the first that is not finite", or the like; empty if
/// everything is finite. The device's context provides `all_finite`.
template <class Device, class T>
[[gnu::cold]] std::string first_not_finite(DeviceWorker<Device, T>& worker, Plan<Device, T>& plan,
                                           std::span<const LayerInfo> layers, const float* parameters,
                                           const BatchView& batch, const RngKey& key) {
    auto& context = worker.context();
    const auto finite = [&](const float* values, std::int64_t count) {
        return all_finite(context, std::span<const float>(values, static_cast<std::size_t>(count)));
    };
    const FixedArray<RequiredColumn> inputs = required_inputs(layers);
    for (std::int64_t i = 0; i < batch.size; ++i) {
        for (const RequiredColumn& each : inputs) {
            const ColumnSpec& column = each.column;
            if (column.type != ElementType::float32) continue;
            const std::int64_t elements = column.shape.size();
            if (finite(batch.data<float>(column.name) + i * elements, elements)) continue;
            const bool other = column.name != input_column;
            return text(other ? "column " : "", other ? std::string_view(column.name) : "",
                        other ? " of sample " : "sample ", i, " of its batch is not finite");
        }
    }
    std::string found;
    worker.inspect(plan, parameters, batch, key, nullptr, [&](std::size_t layer, std::span<const float> values) {
        if (!found.empty() || finite(values.data(), static_cast<std::int64_t>(values.size()))) return;
        found = text("the output of layer ", layer + 1, " (", layers[layer].name,
                     layers[layer].name.empty() ? "" : ", ", layers[layer].type, ") is the first that is not finite");
    });
    return found;
}

}  // namespace impl

#ifndef CUPOLA_OPS

namespace impl {

CUPOLA_INLINE void throw_diverged(std::int64_t step, const std::string& what, const std::string& where, int replica) {
    throw DivergedError(
        text(what, " at step ", step, where.empty() ? "" : ": ", where,
             "; training diverged or a batch holds numbers that are not finite; the parameters are those "
             "before the step"),
        step, replica);
}

CUPOLA_INLINE std::string shown_origin(std::string found) {
    return found.empty() ? "every layer's output is finite" : std::move(found);
}

}  // namespace impl

#endif

}}  // namespace cupola::CUPOLA_ABI
