// SPDX-License-Identifier: Apache-2.0
//
// A network as the nodes of an ONNX graph, from its table of layers and the operators of each layer
// (layers/graph_operator.hpp).
//
// A value of one extent that was flattened from an image has its features in the order (c, h, w) of PyTorch and ONNX,
// not (h, w, c), as long as every feature keeps its place, and so has the weight that reads it in a file
// (io/impl/checkpoint_layout.hpp). Where a layer reads the other order, nodes that reorder are put before it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/onnx_forms.hpp>
#include <cupola/io/impl/onnx_nodes.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/net/table.hpp>
#include <cupola/tensor/batch.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Makes the graph of a network. Throws InvalidArgument for a layer whose operators read what it does not have, and
/// for names that ONNX cannot tell apart.
class OnnxGraphBuilder {
public:
    OnnxGraphBuilder(std::span<const LayerInfo> layers, std::span<const OnnxForm> forms, const StoredTensors& stored,
                     bool channels_last)
        : layers_(layers),
          forms_(forms),
          stored_(stored),
          channels_last_(channels_last),
          outputs_(count_outputs(layers)) {
        find_outputs(layers, outputs_);
        std::size_t parameters = 0, buffers = 0;
        for (const LayerInfo& layer : layers) {
            first_parameter_.push_back(parameters);
            first_buffer_.push_back(buffers);
            parameters += layer.parameters.count;
            buffers += layer.buffers.count;
        }
    }

    [[nodiscard]] OnnxGraph build() && {
        for (const NetworkOutput& output : outputs_) claim(name_of(output));
        for (const auto* const tensors : {&stored_.parameters, &stored_.buffers})
            for (const StoredTensor& tensor : *tensors) claim(tensor.name);
        values_.push_back(add_input(input_column, layers_.front().input, layers_.front().column_type));
        for (std::size_t i = 0; i < layers_.size(); ++i) values_.push_back(value_of(i));
        for (const NetworkOutput& output : outputs_) add_output(output);
        return std::move(graph_);
    }

private:
    /// The order of flattened features: [channels][places] in the graph, [places][channels] in the network. The default
    /// is the network's order.
    struct FeatureOrder {
        std::int64_t places = 1, channels = 1;
        bool operator==(const FeatureOrder&) const = default;
    };
    struct Value {
        std::string name;
        Shape shape{};
        FeatureOrder order{};
        /// Ids are no image, whatever their extents.
        bool ids = false;
    };

    [[nodiscard]] static FeatureOrder order_of(std::int64_t places, std::int64_t channels) {
        return places > 1 && channels > 1 ? FeatureOrder{places, channels} : FeatureOrder{};
    }
    [[nodiscard]] static std::string_view name_of(const NetworkOutput& output) {
        return output.name.empty() ? std::string_view("output") : output.name;
    }
    [[nodiscard]] std::string description_of_layer(std::size_t i) const {
        CompileTimeMessage message;
        describe(message, i + 1, layers_[i]);
        return {message.characters, message.size};
    }

    void claim(std::string_view name) {
        require(names_.emplace(name).second, "an ONNX file cannot have two of the network's inputs, outputs and ",
                "parameters with the name ", name);
    }
    [[nodiscard]] std::string unique(const std::string& name) {
        std::string result = name;
        for (int number = 1; !names_.insert(result).second; ++number) result = text(name, '_', number);
        return result;
    }

    [[nodiscard]] Shape extents_in_file(const Shape& shape) const {
        const bool channels_first = shape.rank == 3 && !channels_last_;
        return channels_first ? Shape{shape[2], shape[0], shape[1]} : shape;
    }

    Value add_input(std::string_view column, const Shape& shape, ElementType type) {
        claim(column);
        Value value{std::string(column), shape, {}, type == ElementType::int32};
        graph_.inputs.push_back({value.name, type, value.ids ? shape : extents_in_file(shape)});
        if (shape.rank == 3 && !value.ids && channels_last_) value.name = add(value.name, graph_channels_first());
        return value;
    }

    void add_output(const NetworkOutput& output) {
        Value value = values_[output.layer + 1];
        if (channels_last_) {
            value = in_order(value, {});
            if (value.shape.rank == 3) value.name = add(value.name, graph_channels_last());
        }
        const std::string name(name_of(output));
        const auto made_here = std::ranges::find(graph_.nodes, value.name, &OnnxNode::output);
        const bool is_output = std::ranges::find(graph_.outputs, value.name, &OnnxEnd::name) != graph_.outputs.end();
        if (made_here == graph_.nodes.end() || is_output) {
            graph_.nodes.push_back({unique(name + "/Identity"), "Identity", {value.name}, name, {}});
        } else {
            rename(value.name, name);
        }
        graph_.outputs.push_back({name, ElementType::float32, extents_in_file(value.shape)});
    }
    void rename(const std::string& from, const std::string& to) {
        for (OnnxNode& node : graph_.nodes) {
            if (node.output == from) node.output = to;
            std::ranges::replace(node.inputs, from, to);
        }
        for (Value& value : values_) {
            if (value.name == from) value.name = to;
        }
    }

    /// The output of layer `i`, and the nodes that compute it.
    [[nodiscard]] Value value_of(std::size_t i) {
        const LayerInfo& layer = layers_[i];
        if (!layer.column.empty()) return add_input(layer.column, layer.output, layer.column_type);
        Value value = values_[layer.reads];
        if (passes_on(layer)) return value;
        if (value.ids && layer.is_view()) return reshaped_ids(value, layer.output);
        Value second = layer.also_reads == no_value ? Value{} : values_[layer.also_reads];
        const FeatureOrder order = order_for(i, value, second);
        value = in_order(value, order);
        second = in_order(second, order);
        const bool flattens = flattens_image(layer) && !value.ids;
        const GraphOperators operators = forms_[i](layer.input, second.shape);
        std::vector<std::string> results;
        for (const GraphOperator& each : operators) results.push_back(add_operator(i, each, value, second, results));
        if (!results.empty()) value.name = results.back();
        // A weight mixes the features.
        const bool keeps = layer.output == value.shape && std::ranges::all_of(parameters_of(i), [](const auto& tensor) {
                               return tensor.shape.rank < 2;
                           });
        value.order = flattens ? order_of(value.shape.height() * value.shape.width(), value.shape.channels())
                      : keeps  ? order
                               : FeatureOrder{};
        value.ids = false;
        value.shape = layer.output;
        return value;
    }

    /// Ids have no channels that the graph would put first.
    [[nodiscard]] Value reshaped_ids(const Value& ids, const Shape& to) {
        GraphNumbers extents = graph_numbers(0);
        for (std::size_t e = 0; e < to.rank; ++e) extents.list.add(static_cast<double>(to[e]));
        return {add(ids.name, GraphOperator("Reshape").input().constant(extents)), to, {}, true};
    }

    /// The parameters with which a layer computes.
    [[nodiscard]] std::span<const StoredTensor> parameters_of(std::size_t i) const {
        const std::size_t owner = layers_[i].tied_to == no_layer ? i : layers_[i].tied_to;
        return std::span(stored_.parameters).subspan(first_parameter_[owner], layers_[owner].parameters.count);
    }
    [[nodiscard]] std::span<const StoredTensor> buffers_of(std::size_t i) const {
        return std::span(stored_.buffers).subspan(first_buffer_[i], layers_[i].buffers.count);
    }

    /// The order in which a layer reads the features of `value`: that of its parameters in the file, or any if it
    /// computes each feature by itself.
    [[nodiscard]] FeatureOrder order_for(std::size_t i, const Value& value, const Value& second) const {
        for (const auto tensors : {parameters_of(i), buffers_of(i)}) {
            for (const StoredTensor& tensor : tensors) {
                if (tensor.shape.rank < 4 && tensor.places > 1) return order_of(tensor.places, tensor.channels);
            }
        }
        const LayerInfo& layer = layers_[i];
        const bool alone = layer.kind == LayerKind::activation && layer.also_reads == no_value;
        return alone || (layer.kind == LayerKind::sum && value.order == second.order) ? value.order : FeatureOrder{};
    }

    [[nodiscard]] Value in_order(Value value, const FeatureOrder& order) {
        if (value.shape.rank != 1 || value.order == order) return value;
        const auto exchange = [&](std::int64_t rows, std::int64_t columns) {
            if (rows == 1) return;
            value.name = add(value.name, GraphOperator("Reshape").input().constant(0, rows, columns));
            value.name = add(value.name, GraphOperator("Transpose").integers("perm", 0, 2, 1));
            value.name = add(value.name, GraphOperator("Reshape").input().constant(0, -1));
        };
        exchange(value.order.channels, value.order.places);
        exchange(order.places, order.channels);
        value.order = order;
        return value;
    }

    /// A node that belongs to no layer.
    [[nodiscard]] std::string add(const std::string& value, const GraphOperator& node) {
        return add_operator(no_layer, node, {value}, {}, {});
    }
    /// Returns the name of the result.
    std::string add_operator(std::size_t i, const GraphOperator& given, const Value& value, const Value& second,
                             std::span<const std::string> results) {
        const std::string layer = i == no_layer             ? value.name
                                  : layers_[i].name.empty() ? text(i)
                                                            : std::string(layers_[i].name);
        OnnxNode node{.name = unique(text(layer, '/', given.type())), .type = std::string(given.type())};
        const std::string& previous = results.empty() ? value.name : results.back();
        if (given.inputs().size() == 0) node.inputs.push_back(previous);
        for (const GraphInput& input : given.inputs()) {
            using Kind = GraphInput::Kind;
            switch (input.kind) {
                case Kind::input: node.inputs.push_back(value.name); break;
                case Kind::second_input:
                    require(!second.name.empty(), description_of_layer(i), " reads one value, and its ONNX operator ",
                            given.type(), " reads a second one");
                    node.inputs.push_back(second.name);
                    break;
                case Kind::previous: node.inputs.push_back(previous); break;
                case Kind::result:
                    require(input.number < results.size(), description_of_layer(i), ": its ONNX operator ",
                            given.type(), ", number ", results.size(), ", reads the result of operator ", input.number);
                    node.inputs.push_back(results[input.number]);
                    break;
                case Kind::parameter: node.inputs.push_back(parameter_of(i, given, input)); break;
                case Kind::constant:
                    graph_.initializers.push_back(
                        {.name = unique(node.name + "/constant"), .constant = input.constant});
                    node.inputs.push_back(graph_.initializers.back().name);
                    break;
                case Kind::nothing: node.inputs.emplace_back(); break;
            }
        }
        node.attributes.assign(given.attributes().begin(), given.attributes().end());
        node.output = node.name;
        graph_.nodes.push_back(std::move(node));
        return graph_.nodes.back().output;
    }

    /// The name of the initialiser of a parameter or a buffer, which is added to the graph where it is new.
    [[nodiscard]] std::string parameter_of(std::size_t i, const GraphOperator& given, const GraphInput& input) {
        const LayerInfo& owner = parameters_of_layer(layers_, i);
        std::string known;
        for (const bool buffer : {false, true}) {
            const auto tensors = buffer ? buffers_of(i) : parameters_of(i);
            const ParameterList& list = buffer ? layers_[i].buffers : owner.parameters;
            for (std::size_t p = 0; p < list.count; ++p) {
                known += text(known.empty() ? "" : ", ", list.list[p].name);
                if (input.name == list.list[p].name) return initializer_of(tensors[p], buffer, input.zero_row);
            }
        }
        throw InvalidArgument(text(description_of_layer(i), ": its ONNX operator ", given.type(), " reads a parameter ",
                                   input.name, ", and the layer has ",
                                   known.empty() ? "none" : std::string_view(known)));
    }
    [[nodiscard]] std::string initializer_of(const StoredTensor& tensor, bool buffer, std::int64_t zero_row) {
        bool named = false;
        for (const OnnxInitializer& each : graph_.initializers) {
            if (each.stored == &tensor && each.zero_row == zero_row) return each.name;
            named = named || each.stored == &tensor;
        }
        graph_.initializers.push_back({named ? unique(tensor.name) : tensor.name, &tensor, buffer, zero_row});
        return graph_.initializers.back().name;
    }

    std::span<const LayerInfo> layers_;
    std::span<const OnnxForm> forms_;
    const StoredTensors& stored_;
    bool channels_last_;
    std::vector<NetworkOutput> outputs_;
    /// Of each layer, the number of its first parameter, and buffer, among those of the file.
    std::vector<std::size_t> first_parameter_, first_buffer_;
    std::set<std::string, std::less<>> names_;
    std::vector<Value> values_;
    OnnxGraph graph_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
