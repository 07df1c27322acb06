// SPDX-License-Identifier: Apache-2.0
//
// The elements of a network's arrays that belong to each of its parts, and so to a device of a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/pipeline/cut_info.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/replicas/replica_gradients.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The elements [begin, end) of an array; none if they are equal.
struct ElementRange {
    std::int64_t begin = 0, end = 0;

    [[nodiscard]] std::int64_t size() const { return end - begin; }
    void add(std::int64_t first, std::int64_t count) {
        if (count == 0) return;
        begin = size() == 0 ? first : std::min(begin, first);
        end = std::max(end, first + count);
    }
    bool operator==(const ElementRange&) const = default;
};

/// The trained parameters are those of a gradient, and lie before all frozen ones. Each range is that of the layers
/// together: parameters lie in the order of the layers.
struct PartColumns {
    ElementRange trained{}, frozen{}, buffers{};
    bool operator==(const PartColumns&) const = default;
};

[[nodiscard, gnu::cold]] inline PartColumns columns_of_part(std::span<const LayerInfo> layers,
                                                            const LayerRange& range) {
    PartColumns columns;
    for (std::size_t i = range.begin; i < std::min(range.end, layers.size()); ++i) {
        const LayerInfo& layer = layers[i];
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            (layer.frozen[p] ? columns.frozen : columns.trained)
                .add(layer.offsets[p], layer.parameters.list[p].shape.size());
        }
        for (std::size_t b = 0; b < layer.buffers.count; ++b)
            columns.buffers.add(layer.buffer_offsets[b], layer.buffers.list[b].shape.size());
    }
    return columns;
}

/// The places of a row or of an array from `begin` on, to the next of these or the end, which a device of a group has.
struct OwnedFrom {
    std::int64_t begin = 0;
    std::size_t device = 0;
    bool operator==(const OwnedFrom&) const = default;
};

/// Which device of a group has which columns of a row: those of its parts. Padding belongs to the columns before it.
[[nodiscard, gnu::cold]] inline std::vector<OwnedFrom> owned_columns(const CutInfo& cut, RowOf rows) {
    std::vector<OwnedFrom> result;
    const auto add = [&](std::size_t part, const ElementRange& range) {
        const std::size_t device = cut.device_of(part, cut.parts());
        if (range.size() == 0 || (!result.empty() && result.back().device == device)) return;
        result.push_back({result.empty() ? 0 : range.begin, device});
    };
    for (const bool frozen : {false, true}) {
        if (frozen && rows != RowOf::parameters) break;
        for (std::size_t k = 0; k < cut.parts(); ++k) {
            const PartColumns columns = columns_of_part(cut.layers, cut.layers_of(k));
            add(k, rows == RowOf::buffers ? columns.buffers : frozen ? columns.frozen : columns.trained);
        }
    }
    if (result.empty()) result.push_back({0, cut.device_of(0, cut.parts())});
    return result;
}

/// The same of an array of `count` rows of `length` elements.
[[nodiscard, gnu::cold]] inline std::vector<OwnedFrom> owned_elements(std::span<const OwnedFrom> columns,
                                                                      std::int64_t length, std::int64_t count) {
    std::vector<OwnedFrom> result;
    for (std::int64_t row = 0; row < count; ++row) {
        for (const OwnedFrom& each : columns) {
            if (result.empty() || result.back().device != each.device)
                result.push_back({row * length + each.begin, each.device});
        }
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
