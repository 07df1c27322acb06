// SPDX-License-Identifier: Apache-2.0
//
// An ONNX graph as the protocol buffer ModelProto, whose field numbers are those of onnx.proto. The weights are written
// one after another and not held in a message, so all lengths are computed before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/io/atomic_file.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/onnx_nodes.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr std::int64_t onnx_ir_version = 8, onnx_opset = 17;
/// The element types of TensorProto.
enum class OnnxType : std::int32_t { float32 = 1, uint8 = 2, int32 = 6, int64 = 7 };

[[nodiscard]] constexpr OnnxType onnx_type(ElementType type) {
    if (type == ElementType::uint8) return OnnxType::uint8;
    return type == ElementType::int32 ? OnnxType::int32 : OnnxType::float32;
}

inline void add_attribute(protozero::pbf_writer& node, const GraphAttribute& attribute) {
    // The values of AttributeProto's field `type`.
    constexpr std::int32_t is_float = 1, is_int = 2, is_string = 3, is_ints = 7;
    protozero::pbf_writer message(node, 5);
    message.add_string(1, attribute.name.data(), attribute.name.size());
    const GraphNumbers& numbers = attribute.numbers;
    if (!attribute.text.empty()) {
        message.add_bytes(4, attribute.text.data(), attribute.text.size());
        message.add_enum(20, is_string);
    } else if (numbers.type == GraphNumbers::Type::float32) {
        message.add_float(2, static_cast<float>(numbers.list[0]));
        message.add_enum(20, is_float);
    } else if (numbers.scalar) {
        message.add_int64(3, static_cast<std::int64_t>(numbers.list[0]));
        message.add_enum(20, is_int);
    } else {
        for (const double number : numbers.list) message.add_int64(8, static_cast<std::int64_t>(number));
        message.add_enum(20, is_ints);
    }
}

inline void add_node(protozero::pbf_writer& graph, const OnnxNode& node) {
    protozero::pbf_writer message(graph, 1);
    for (const std::string& input : node.inputs) message.add_string(1, input);
    message.add_string(2, node.output);
    message.add_string(3, node.name);
    message.add_string(4, node.type);
    for (const GraphAttribute& attribute : node.attributes) add_attribute(message, attribute);
}

inline void add_end(protozero::pbf_writer& graph, std::uint32_t field, const OnnxEnd& end) {
    protozero::pbf_writer info(graph, field);
    info.add_string(1, end.name);
    protozero::pbf_writer type(info, 2);
    protozero::pbf_writer tensor(type, 1);
    tensor.add_enum(1, static_cast<std::int32_t>(onnx_type(end.type)));
    protozero::pbf_writer shape(tensor, 2);
    {
        protozero::pbf_writer batch(shape, 1);
        batch.add_string(2, "N");
    }
    for (std::size_t i = 0; i < end.extents.rank; ++i) {
        protozero::pbf_writer extent(shape, 1);
        extent.add_int64(1, end.extents[i]);
    }
}

/// The beginning of a field of bytes, or of a message, whose content of `size` bytes follows.
inline void begin_field(std::string& message, std::uint32_t field, std::uint64_t size) {
    constexpr std::uint32_t length_delimited = 2;
    protozero::add_varint_to_buffer(&message, field << 3 | length_delimited);
    protozero::add_varint_to_buffer(&message, size);
}

template <class T>
[[nodiscard]] std::string bytes_of(const GraphNumbers& numbers) {
    std::string result;
    const auto add = [&](double number) {
        const T value = static_cast<T>(number);
        result.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    for (const double number : numbers.list) add(number);
    for (std::int64_t row = 0; row < numbers.rows; ++row) {
        for (std::int64_t column = 0; column < numbers.columns; ++column) add(numbers.element(numbers, row, column));
    }
    return result;
}

/// A model without the values of its weights.
class OnnxMessage {
public:
    OnnxMessage(const OnnxGraph& graph, const std::string& name,
                std::span<const std::pair<std::string, std::string>> metadata)
        : graph_(graph) {
        std::string rest;
        {
            protozero::pbf_writer writer(rest);
            for (const OnnxNode& node : graph.nodes) add_node(writer, node);
            writer.add_string(2, name);
            for (const OnnxEnd& input : graph.inputs) add_end(writer, 11, input);
            for (const OnnxEnd& output : graph.outputs) add_end(writer, 12, output);
        }
        size_ = rest.size();
        for (const OnnxInitializer& each : graph.initializers) {
            tensors_.push_back(begun_tensor(each));
            size_ += tensors_.back().size() + bytes_of_weight(each);
        }
        {
            protozero::pbf_writer model(head_);
            model.add_int64(1, onnx_ir_version);
            model.add_string(2, "cupola");
            model.add_string(3, text(CUPOLA_VERSION_MAJOR, '.', CUPOLA_VERSION_MINOR, '.', CUPOLA_VERSION_PATCH));
            {
                protozero::pbf_writer opset(model, 8);
                opset.add_string(1, "");
                opset.add_int64(2, onnx_opset);
            }
            for (const auto& [key, value] : metadata) {
                protozero::pbf_writer entry(model, 14);
                entry.add_string(1, key);
                entry.add_string(2, value);
            }
        }
        begin_field(head_, 7, size_);
        size_ += head_.size();
        head_ += rest;
    }

    /// Bytes of the file.
    [[nodiscard]] std::uint64_t size() const { return size_; }

    /// Writes the model with the weights in these arenas.
    void write(const std::string& path, std::span<const float> parameters, std::span<const float> buffers) const {
        AtomicFile file(path);
        file.write(std::as_bytes(std::span(head_)));
        std::vector<float> weight;
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            file.write(std::as_bytes(std::span(tensors_[i])));
            const OnnxInitializer& each = graph_.initializers[i];
            if (each.stored == nullptr) continue;
            weight.resize(each.stored->size());
            to_file(*each.stored, each.is_buffer ? buffers.data() : parameters.data(), weight.data());
            if (each.zero_row >= 0) {
                const std::size_t row = weight.size() / static_cast<std::size_t>(each.stored->shape[0]);
                std::fill_n(weight.begin() + each.zero_row * static_cast<std::int64_t>(row), row, 0.0F);
            }
            file.write(std::as_bytes(std::span(weight)));
        }
        file.commit();
    }

private:
    [[nodiscard]] static std::uint64_t bytes_of_weight(const OnnxInitializer& tensor) {
        return tensor.stored == nullptr ? 0 : tensor.stored->size() * sizeof(float);
    }
    /// A tensor up to its raw data, of which it has those of a constant.
    [[nodiscard]] static std::string begun_tensor(const OnnxInitializer& tensor) {
        const GraphNumbers& constant = tensor.constant;
        const bool is_int = tensor.stored == nullptr && constant.type == GraphNumbers::Type::int64;
        std::string content;
        {
            protozero::pbf_writer writer(content);
            if (tensor.stored != nullptr) {
                for (std::size_t i = 0; i < tensor.stored->shape.rank; ++i)
                    writer.add_int64(1, tensor.stored->shape[i]);
            } else if (constant.rows > 0) {
                writer.add_int64(1, constant.rows);
                writer.add_int64(1, constant.columns);
            } else if (!constant.scalar) {
                writer.add_int64(1, static_cast<std::int64_t>(constant.list.size()));
                for (std::size_t i = 0; i < constant.trailing_ones; ++i) writer.add_int64(1, 1);
            }
            writer.add_int32(2, static_cast<std::int32_t>(is_int ? OnnxType::int64 : OnnxType::float32));
            writer.add_string(8, tensor.name);
        }
        const std::string own = tensor.stored != nullptr ? std::string()
                                : is_int                 ? bytes_of<std::int64_t>(constant)
                                                         : bytes_of<float>(constant);
        const std::uint64_t raw = own.size() + bytes_of_weight(tensor);
        begin_field(content, 9, raw);
        std::string result;
        begin_field(result, 5, content.size() + raw);
        return result + content + own;
    }

    const OnnxGraph& graph_;
    /// The model up to the first tensor of its graph, and each tensor up to its weights.
    std::string head_;
    std::vector<std::string> tensors_;
    std::uint64_t size_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
