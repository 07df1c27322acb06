// SPDX-License-Identifier: Apache-2.0
//
// Reads ONNX files back, for tests only: a model as texts and bytes. A field that is not one of onnx.proto's, or that
// the writer does not use, is an error.
#pragma once

#include "../test.hpp"

#include <protozero/pbf_reader.hpp>

namespace cupola_tests {

struct OnnxTensor {
    std::vector<std::int64_t> dims;
    std::int32_t type = 0;
    std::string raw;

    template <class T>
    [[nodiscard]] std::vector<T> values() const {
        std::vector<T> result(raw.size() / sizeof(T));
        std::memcpy(result.data(), raw.data(), result.size() * sizeof(T));
        return result;
    }
};

struct OnnxModel {
    std::int64_t ir_version = 0, opset = 0;
    std::string producer, producer_version, graph;
    std::map<std::string, std::string> metadata;
    /// "Gemm(x, fc.weight, fc.bias) transB=1 -> fc/Gemm"
    std::vector<std::string> nodes;
    std::vector<std::string> node_names;
    std::map<std::string, OnnxTensor> initializers;
    /// "input: 1 [N, 3, 4, 4]", with the element type's number.
    std::vector<std::string> inputs, outputs;
};

inline std::string read_attribute(protozero::pbf_reader message) {
    std::string name, value;
    int type = 0, of_value = 0;
    while (message.next()) {
        switch (message.tag()) {
            case 1: name = message.get_string(); break;
            case 2: value = text(message.get_float()), of_value = 1; break;
            case 3: value = text(message.get_int64()), of_value = 2; break;
            case 4: value = message.get_string(), of_value = 3; break;
            case 8: value += text(value.empty() ? "" : ",", message.get_int64()), of_value = 7; break;
            case 20: type = message.get_enum(); break;
            default: FAIL("an attribute has the field ", message.tag());
        }
    }
    CHECK(type == of_value);
    return name + '=' + value;
}

inline void read_node(protozero::pbf_reader message, OnnxModel& model) {
    std::string type, inputs, outputs, attributes;
    while (message.next()) {
        switch (message.tag()) {
            case 1: inputs += (inputs.empty() ? "" : ", ") + message.get_string(); break;
            case 2: outputs += message.get_string(); break;
            case 3: model.node_names.push_back(message.get_string()); break;
            case 4: type = message.get_string(); break;
            case 5: attributes += ' ' + read_attribute(message.get_message()); break;
            default: FAIL("a node has the field ", message.tag());
        }
    }
    model.nodes.push_back(type + '(' + inputs + ')' + attributes + " -> " + outputs);
}

inline void read_tensor(protozero::pbf_reader message, OnnxModel& model) {
    OnnxTensor tensor;
    std::string name;
    while (message.next()) {
        switch (message.tag()) {
            case 1: tensor.dims.push_back(message.get_int64()); break;
            case 2: tensor.type = message.get_int32(); break;
            case 8: name = message.get_string(); break;
            case 9: tensor.raw = message.get_bytes(); break;
            default: FAIL("a tensor has the field ", message.tag());
        }
    }
    CHECK(model.initializers.emplace(name, tensor).second);
}

inline std::string read_end(protozero::pbf_reader message) {
    std::string name, extents;
    int type = 0;
    while (message.next()) {
        if (message.tag() == 1) {
            name = message.get_string();
            continue;
        }
        REQUIRE(message.tag() == 2);
        protozero::pbf_reader of_type = message.get_message();
        REQUIRE(of_type.next(1));
        protozero::pbf_reader tensor = of_type.get_message();
        while (tensor.next()) {
            if (tensor.tag() == 1) {
                type = tensor.get_enum();
                continue;
            }
            protozero::pbf_reader shape = tensor.get_message();
            while (shape.next(1)) {
                protozero::pbf_reader extent = shape.get_message();
                REQUIRE(extent.next());
                extents += extents.empty() ? "" : ", ";
                extents += extent.tag() == 1 ? text(extent.get_int64()) : extent.get_string();
            }
        }
    }
    return text(name, ": ", type, " [", extents, ']');
}

inline OnnxModel read_onnx(const std::string& file) {
    OnnxModel model;
    protozero::pbf_reader message(file);
    while (message.next()) {
        switch (message.tag()) {
            case 1: model.ir_version = message.get_int64(); break;
            case 2: model.producer = message.get_string(); break;
            case 3: model.producer_version = message.get_string(); break;
            case 7: {
                protozero::pbf_reader graph = message.get_message();
                while (graph.next()) {
                    switch (graph.tag()) {
                        case 1: read_node(graph.get_message(), model); break;
                        case 2: model.graph = graph.get_string(); break;
                        case 5: read_tensor(graph.get_message(), model); break;
                        case 11: model.inputs.push_back(read_end(graph.get_message())); break;
                        case 12: model.outputs.push_back(read_end(graph.get_message())); break;
                        default: FAIL("a graph has the field ", graph.tag());
                    }
                }
                break;
            }
            case 8: {
                protozero::pbf_reader opset = message.get_message();
                while (opset.next()) opset.tag() == 2 ? void(model.opset = opset.get_int64()) : opset.skip();
                break;
            }
            case 14: {
                protozero::pbf_reader entry = message.get_message();
                std::string key, value;
                while (entry.next()) {
                    std::string& part = entry.tag() == 1 ? key : value;
                    part = entry.get_string();
                }
                model.metadata[key] = value;
                break;
            }
            default: FAIL("a model has the field ", message.tag());
        }
    }
    return model;
}

}  // namespace cupola_tests
