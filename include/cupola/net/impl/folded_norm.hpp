// SPDX-License-Identifier: Apache-2.0
//
// A batch normalisation folded into the node before it: the resulting weight and bias, and their place in memory.
#pragma once

#include <cstddef>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/device/device.hpp>
#include <cupola/net/node_info.hpp>
#include <cupola/net/table.hpp>
#include <cupola/ops/fold_batch_norm.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Offsets in bytes; that of the weight is 0. The size is 0 for a node without a folded normalisation.
struct FoldedNormPlaces {
    std::size_t bias = 0, bytes = 0;
};
[[nodiscard]] constexpr FoldedNormPlaces folded_norm_places(std::span<const LayerInfo> layers, const NodeInfo& node) {
    if (node.folded_norm == no_layer) return {};
    const auto floats = [](std::int64_t count) { return aligned(static_cast<std::size_t>(count) * sizeof(float)); };
    const std::size_t weight = floats(parameters_of_layer(layers, node.layer).parameters.list[0].shape.size());
    return {.bias = weight, .bytes = weight + floats(node.output.channels())};
}

/// Computes them into `memory`; the node's operation is then prepared with them.
template <class Device>
[[gnu::cold]] void fold_norm(typename Device::Context& context, std::span<const LayerInfo> layers, const NodeInfo& node,
                             const float* parameters, const float* frozen, const float* running, std::byte* memory) {
    const LayerInfo &layer = parameters_of_layer(layers, node.layer), &norm = layers[node.folded_norm];
    const LayerInfo& affine = parameters_of_layer(layers, node.folded_norm);
    require(running != nullptr, norm.uses_running_statistics ? "a frozen layer" : "outside training the network",
            " reads running statistics (", buffer_name(layers, node.folded_norm, 0), "), and `prepare` was given none");
    const std::int64_t channels = node.output.channels();
    const auto at = [&](const LayerInfo& of, std::size_t p) {
        return (of.frozen[p] ? frozen : parameters) + of.offsets[p];
    };
    ops::FoldBatchNorm<Device>::run(context,
                                    {.weight = at(layer, 0),
                                     .bias = layer.parameters.count > 1 ? at(layer, 1) : nullptr,
                                     .scale = at(affine, 0),
                                     .shift = at(affine, 1),
                                     .mean = running + norm.buffer_offsets[0],
                                     .variance = running + norm.buffer_offsets[1],
                                     .epsilon = norm.kind_parts.batch_norm.epsilon,
                                     .channels = channels,
                                     .weights_per_channel = layer.parameters.list[0].shape.size() / channels},
                                    reinterpret_cast<float*>(memory),
                                    reinterpret_cast<float*>(memory + folded_norm_places(layers, node).bias));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
