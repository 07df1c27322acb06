// SPDX-License-Identifier: Apache-2.0
//
// Definitions of cupola/net/summary.hpp.
#pragma once

#include <cupola/net/recompute.hpp>
#include <cupola/net/summary.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

CUPOLA_DECL std::string grouped(std::int64_t number) {
    std::string digits = text(number);
    for (std::size_t i = digits.size(); i > 3;) digits.insert(i -= 3, 1, ',');
    return digits;
}

CUPOLA_DECL std::string frozen_text(const LayerInfo& layer) {
    if (layer.trained_parameters() == layer.parameters.count) return {};
    if (layer.trained_parameters() == 0) return ", frozen";
    std::string names;
    for (std::size_t p = 0; p < layer.parameters.count; ++p) {
        if (layer.frozen[p]) names += text(", ", shown_name(layer.parameters.list[p]));
    }
    return names + " frozen";
}

CUPOLA_DECL std::string frozen_line(std::span<const LayerInfo> layers) {
    std::int64_t frozen = 0;
    bool running = false, batch = false;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerInfo& layer = layers[i];
        for (std::size_t p = 0; p < layer.parameters.count; ++p)
            frozen += layer.frozen[p] ? layer.parameters.list[p].shape.size() : 0;
        if (layer.kind != LayerKind::batch_norm || !is_frozen(layers, i)) continue;
        (layer.uses_running_statistics ? running : batch) = true;
    }
    if (frozen == 0) return {};
    std::string line = text(grouped(frozen), " of ", grouped(count_parameters(layers)), " parameters are frozen");
    if (running) line += "; frozen batch normalisations use their running statistics";
    if (batch) line += text("; ", running ? "others" : "frozen batch normalisations", " use those of the batch");
    return line + '\n';
}

CUPOLA_DECL std::string recompute_line(std::span<const LayerInfo> layers, bool fusion, std::int64_t batch,
                                       std::size_t element_bytes) {
    const RecomputationFigures figures = count_recomputed(layers, fusion);
    if (figures.operations == 0) return {};
    FixedArray<LayerInfo> plain{layers};
    for (LayerInfo& layer : plain) layer.recompute_block = no_layer;
    return text(figures.operations, figures.operations == 1 ? " operation of " : " operations of ", figures.blocks,
                figures.blocks == 1 ? " block runs" : " blocks run",
                " forward again in backward: ", grouped(figures.multiply_adds),
                " multiply-adds more per sample; without that the activations are ",
                bytes_text(planned_activation_bytes(plain, fusion, batch, element_bytes)), '\n');
}

[[gnu::cold]] CUPOLA_DECL std::string aligned_table(const std::vector<std::vector<std::string>>& cells) {
    std::vector<std::size_t> widths;
    for (const auto& row : cells) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    std::string result;
    for (const auto& row : cells) {
        std::string line;
        for (std::size_t c = 0; c < row.size(); ++c) {
            const std::string space(widths[c] - row[c].size(), ' ');
            line += c < 3 ? row[c] + space : space + row[c];
            line += "  ";
        }
        line.erase(line.find_last_not_of(' ') + 1);
        result += line + '\n';
    }
    return result;
}

[[gnu::cold]] CUPOLA_DECL std::string summary(std::span<const LayerInfo> layers, const Shape& input, bool fusion,
                                              std::int64_t batch, std::size_t activation_arena,
                                              std::size_t element_bytes) {
    std::vector<NodeInfo> nodes(layers.size());
    nodes.resize(fuse(layers, fusion, nodes));
    std::vector<std::vector<std::string>> cells{
        {"name", "layer", "output", "parameters", "multiply-adds", "activations"}};
    const auto bytes = [&](const Shape& shape) {
        return bytes_text(static_cast<std::size_t>(batch * shape.size()) * element_bytes);
    };
    const auto type_text = [](ElementType type) {
        return type == ElementType::float32 ? std::string() : text(", ", to_string(type));
    };
    const ElementType type = layers.front().column_type;
    cells.push_back({"", "Input" + type_text(type), to_string(input), "", "",
                     type == ElementType::float32
                         ? bytes(input)
                         : bytes_text(static_cast<std::size_t>(batch * input.size()) * size_of(type))});
    std::int64_t work = 0;
    for (const NodeInfo& node : nodes) {
        for (std::size_t i = node.layer; i < node.layer + node.layers; ++i) {
            const LayerInfo& layer = layers[i];
            std::int64_t count = 0;
            for (std::size_t p = 0; p < layer.parameters.count; ++p) count += layer.parameters.list[p].shape.size();
            work = saturating_sum(work, layer.multiply_adds);
            const bool written = !layer.is_view() && i + 1 == node.layer + node.layers;
            const bool tied = layer.tied_to != no_layer;
            cells.push_back({std::string(layer.name),
                             text(i > node.layer ? "+ " : "", layer.description, tied ? ", tied to " : "",
                                  tied ? layers[layer.tied_to].name : std::string_view{},
                                  layer.column.empty() ? std::string() : type_text(layer.column_type),
                                  frozen_text(parameters_of_layer(layers, i))),
                             to_string(layer.output), count > 0 ? grouped(count) : "",
                             layer.multiply_adds > 0 ? grouped(layer.multiply_adds) : "",
                             layer.is_view() ? "view"
                             : written       ? bytes(layer.output)
                                             : "fused"});
        }
    }
    std::string copies;
    for (const LayerInfo& layer : layers) {
        if (layer.traits.runs_on.empty()) continue;
        const auto once = static_cast<std::size_t>(batch * (layer.input.size() + layer.output.size())) * sizeof(float);
        copies += text(layer.name.empty() ? layer.description : layer.name, " runs on ", layer.traits.runs_on,
                       ": a network on another device copies ", bytes_text(once),
                       " in forward and as much in backward, and its parameters and their gradients once per step\n");
    }
    cells.push_back({"total", "", "", grouped(count_parameters(layers)), grouped(work),
                     text(bytes_text(activation_arena), " shared")});
    return aligned_table(cells) + copies + frozen_line(layers) + recompute_line(layers, fusion, batch, element_bytes);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
