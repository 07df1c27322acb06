// SPDX-License-Identifier: Apache-2.0
//
// The tags of TensorFlow's CIFAR-10 tutorial for a network's layers, parameters and losses: "conv1/weights",
// "local3/weight_loss". TensorBoard groups tags by the text before their first slash.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// "conv1"; the layer's number for a layer without a name. Dots separate levels in Cupola, slashes in TensorBoard.
[[nodiscard]] inline std::string layer_tag(std::span<const LayerInfo> layers, std::size_t layer) {
    std::string result = layers[layer].name.empty() ? text(layer) : std::string(layers[layer].name);
    for (char& c : result) c = c == '.' ? '/' : c;
    return result;
}

/// "conv1/weights" for conv1.weight; "bn1/gamma" for bn1.weight.
[[nodiscard]] inline std::string parameter_tag(std::span<const LayerInfo> layers, std::size_t layer,
                                               std::size_t parameter) {
    const std::string_view name = layers[layer].parameters.list[parameter].name;
    const bool normalization = layers[layer].kind == LayerKind::batch_norm;
    std::string_view tag = name;
    if (name == "weight") tag = normalization ? "gamma" : "weights";
    if (name == "bias") tag = normalization ? "beta" : "biases";
    return text(layer_tag(layers, layer), tag.empty() ? "" : "/", tag);
}

/// "local3/weight_loss" for the part weight_decay/local3; other parts keep their names.
[[nodiscard]] inline std::string loss_tag(std::string_view part) {
    constexpr std::string_view decay = "weight_decay/";
    return part.starts_with(decay) ? text(part.substr(decay.size()), "/weight_loss") : std::string(part);
}

/// The layer whose output is the activation of layer `layer`: the next layer if it is an activation function that reads
/// its output, otherwise `layer` itself.
[[nodiscard]] inline std::size_t activation_layer(std::span<const LayerInfo> layers, std::size_t layer) {
    const std::size_t next = layer + 1;  // also the number of the output value of `layer`
    const bool followed =
        next < layers.size() && layers[next].kind == LayerKind::activation && layers[next].reads == next;
    return followed ? next : layer;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
