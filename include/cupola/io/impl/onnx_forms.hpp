// SPDX-License-Identifier: Apache-2.0
//
// What each layer of a network is in an ONNX graph, collected from the types of its layers, and the first layer that
// does not say it.
#pragma once

#include <array>
#include <cstddef>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The operators of a layer by the extents of its input, and of the second one if it has two; null for a layer that
/// does not say them.
using OnnxForm = GraphOperators (*)(const Shape& input, const Shape& second_input);

template <std::size_t layer_count>
struct CollectOnnxForms {
    std::array<OnnxForm, layer_count> forms{};
    std::size_t count = 0;

    template <class L>
    constexpr void layer() {
        if constexpr (HasGraphOperators<L>) {
            forms[count] = [](const Shape& input, const Shape&) -> GraphOperators { return L::onnx(input); };
        } else if constexpr (HasGraphOperatorsOfTwo<L>) {
            forms[count] = [](const Shape& input, const Shape& second) -> GraphOperators {
                return L::onnx(input, second);
            };
        }
        ++count;
    }
};

template <Network Net>
inline constexpr auto onnx_forms = [] {
    CollectOnnxForms<Net::layers.size()> collected;
    Net::visit_layer_types(collected);
    return collected.forms;
}();

/// Whether the output of a layer is its input in evaluation: it is no node of a graph.
[[nodiscard]] constexpr bool passes_on(const LayerInfo& layer) {
    return layer.traits.only_in_training || (layer.is_view() && layer.output == layer.input);
}

/// The error of the first layer that has no form, and none if all have one.
template <Network Net>
[[nodiscard]] constexpr CompileTimeMessage onnx_diagnostic() {
    CompileTimeMessage message;
    for (std::size_t i = 0; Net::valid && i < Net::layers.size(); ++i) {
        const LayerInfo& layer = Net::layers[i];
        if (onnx_forms<Net>[i] != nullptr || passes_on(layer) || !layer.column.empty() || !message.empty()) continue;
        describe(message, i + 1, layer);
        message << " has no form in ONNX: it lacks `static constexpr GraphOperators onnx(const Shape& input)`";
    }
    return message;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
