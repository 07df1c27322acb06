// SPDX-License-Identifier: Apache-2.0
//
// PartColumns: the elements of a network's arrays that belong to one of its parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/abi.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>

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
    void add(const ElementRange& other) { add(other.begin, other.size()); }
    bool operator==(const ElementRange&) const = default;
};

/// The trained parameters are those of a gradient, and lie before all frozen ones. Each range is that of the layers
/// together: parameters lie in the order of the layers.
struct PartColumns {
    ElementRange trained{}, frozen{}, buffers{};

    /// From the first to the last parameter.
    [[nodiscard]] ElementRange parameters() const {
        ElementRange all = trained;
        all.add(frozen);
        return all;
    }
    void add(const PartColumns& other) {
        trained.add(other.trained);
        frozen.add(other.frozen);
        buffers.add(other.buffers);
    }
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

}}}  // namespace cupola::CUPOLA_ABI::impl
