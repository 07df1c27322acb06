// SPDX-License-Identifier: Apache-2.0
//
// What a layer is in an ONNX graph (io/onnx.hpp): the operators of opset 17 that compute in evaluation what the layer
// computes, each with its inputs and attributes, as plain values. A layer states them in an optional member, which only
// a program that writes ONNX files reads:
//
//   static constexpr GraphOperators onnx(const Shape& input) {
//       return GraphOperator("Gemm").input().parameter("weight").parameter("bias").integer("transB", 1);
//   }
//   static constexpr GraphOperators onnx(const Shape&) {  // x times sigmoid(x)
//       return {GraphOperator("Sigmoid"), GraphOperator("Mul").input().previous()};
//   }
//
// An operator of which no input is named reads previous(): the result of the operator before it, or the layer's input.
// The result of the last operator is the layer's output. Values have one extent more than here, the batch, which comes
// first, and images are channels first: a sample of 24 x 24 x 3 is a value [N, 3, 24, 24]. Samples of other ranks, and
// ids, have the extents that they have here, and parameters those of a checkpoint (PyTorch's). Without an operator, as
// from `return {}`, the layer passes its input on.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Values in the order in which they are added, at most `capacity`; InvalidArgument for more.
template <class T, std::size_t capacity>
struct GraphList {
    std::array<T, capacity> values{};
    std::size_t count = 0;

    constexpr void add(const T& value) {
        if (count == capacity) throw_joined<InvalidArgument>({"an ONNX operator has more than ", capacity, " parts"});
        values[count++] = value;
    }
    [[nodiscard]] constexpr const T* begin() const { return values.data(); }
    [[nodiscard]] constexpr const T* end() const { return values.data() + count; }
    [[nodiscard]] constexpr std::size_t size() const { return count; }
    [[nodiscard]] constexpr const T& operator[](std::size_t i) const { return values[i]; }
};

}  // namespace impl

/// Numbers of an operator: an attribute, or a constant that it reads. Integers are below 2^53.
struct GraphNumbers {
    enum class Type : std::uint8_t { int64, float32 };
    Type type = Type::int64;
    impl::GraphList<double, 10> list{};
    /// One number without an extent.
    bool scalar = false;
    /// For a constant, extents of 1 behind its first: two where its numbers are of an image's channels.
    std::size_t trailing_ones = 0;
    /// For a constant that is a matrix, in place of the list: its extents, and its element of a row and a column.
    std::int64_t rows = 0, columns = 0;
    double (*element)(const GraphNumbers& matrix, std::int64_t row, std::int64_t column) = nullptr;
};

namespace impl {

/// A list of integers, or one number.
template <std::integral... Integers>
[[nodiscard]] constexpr GraphNumbers graph_numbers(Integers... numbers) {
    GraphNumbers result;
    (result.list.add(static_cast<double>(numbers)), ...);
    return result;
}
[[nodiscard]] constexpr GraphNumbers graph_number(double number) {
    GraphNumbers result{.type = GraphNumbers::Type::float32, .scalar = true};
    result.list.add(number);
    return result;
}

}  // namespace impl

/// What an operator reads.
struct GraphInput {
    enum class Kind : std::uint8_t { input, second_input, previous, result, parameter, constant, nothing };
    Kind kind = Kind::previous;
    /// For a result, the number of its operator in the layer's list.
    std::size_t number = 0;
    /// The name of a parameter or a buffer in its layer, and a row of it that is read as zeros; -1 for none.
    std::string_view name{};
    std::int64_t zero_row = -1;
    GraphNumbers constant{};
};

struct GraphAttribute {
    std::string_view name{};
    GraphNumbers numbers{};
    /// The value, if it is a text.
    std::string_view text{};
};

/// One operator; each member function adds a part, and the order of the inputs is that of the calls.
class GraphOperator {
public:
    constexpr GraphOperator() = default;
    /// By the operator's name in ONNX.
    explicit constexpr GraphOperator(std::string_view type) : type_(type) {}

    /// The value that the layer reads, and the second one of a layer that joins two.
    constexpr GraphOperator& input() { return read({.kind = GraphInput::Kind::input}); }
    constexpr GraphOperator& second_input() { return read({.kind = GraphInput::Kind::second_input}); }
    /// What the operator before it in the layer's list computed; for the first one the layer's input.
    constexpr GraphOperator& previous() { return read({.kind = GraphInput::Kind::previous}); }
    /// What operator `number` of the list computed.
    constexpr GraphOperator& result(std::size_t number) {
        return read({.kind = GraphInput::Kind::result, .number = number});
    }
    /// A parameter or a buffer of the layer.
    constexpr GraphOperator& parameter(std::string_view name, std::int64_t zero_row = -1) {
        return read({.kind = GraphInput::Kind::parameter, .name = name, .zero_row = zero_row});
    }
    /// A constant: a list of integers, a float, or other numbers.
    template <std::integral... Integers>
    constexpr GraphOperator& constant(Integers... numbers) {
        return constant(impl::graph_numbers(numbers...));
    }
    constexpr GraphOperator& constant(double number) { return constant(impl::graph_number(number)); }
    constexpr GraphOperator& constant(const GraphNumbers& numbers) {
        return read({.kind = GraphInput::Kind::constant, .constant = numbers});
    }
    /// In place of an optional input.
    constexpr GraphOperator& nothing() { return read({.kind = GraphInput::Kind::nothing}); }

    constexpr GraphOperator& integer(std::string_view name, std::int64_t value) {
        GraphNumbers numbers = impl::graph_numbers(value);
        numbers.scalar = true;
        return attribute({name, numbers});
    }
    template <std::integral... Integers>
    constexpr GraphOperator& integers(std::string_view name, Integers... values) {
        return attribute({name, impl::graph_numbers(values...)});
    }
    constexpr GraphOperator& number(std::string_view name, double value) {
        return attribute({name, impl::graph_number(value)});
    }
    constexpr GraphOperator& text(std::string_view name, std::string_view value) {
        return attribute({name, {}, value});
    }
    /// The kernel_shape, strides and pads of an operator with a window, and its dilations unless they are 1.
    constexpr GraphOperator& window(const WindowAxis& height, const WindowAxis& width) {
        integers("kernel_shape", height.window, width.window).integers("strides", height.stride, width.stride);
        integers("pads", height.pad_begin, width.pad_begin, height.pad_end, width.pad_end);
        if (height.dilation == 1 && width.dilation == 1) return *this;
        return integers("dilations", height.dilation, width.dilation);
    }

    /// The same along the one axis of a sequence.
    constexpr GraphOperator& window(const WindowAxis& length) {
        integers("kernel_shape", length.window).integers("strides", length.stride);
        integers("pads", length.pad_begin, length.pad_end);
        return length.dilation == 1 ? *this : integers("dilations", length.dilation);
    }

    [[nodiscard]] constexpr std::string_view type() const { return type_; }
    [[nodiscard]] constexpr const auto& inputs() const { return inputs_; }
    [[nodiscard]] constexpr const auto& attributes() const { return attributes_; }

private:
    constexpr GraphOperator& read(const GraphInput& input) {
        inputs_.add(input);
        return *this;
    }
    constexpr GraphOperator& attribute(const GraphAttribute& attribute) {
        attributes_.add(attribute);
        return *this;
    }

    std::string_view type_{};
    impl::GraphList<GraphInput, 6> inputs_{};
    impl::GraphList<GraphAttribute, 6> attributes_{};
};

/// The axis of the channels of a value: those of an image come first after the batch, and others last.
[[nodiscard]] constexpr std::int64_t graph_channel_axis(const Shape& shape) {
    return shape.rank == 3 ? 1 : static_cast<std::int64_t>(shape.rank);
}
/// Puts the channels of an image last, or first again.
[[nodiscard]] constexpr GraphOperator graph_channels_last() {
    return GraphOperator("Transpose").integers("perm", 0, 2, 3, 1);
}
[[nodiscard]] constexpr GraphOperator graph_channels_first() {
    return GraphOperator("Transpose").integers("perm", 0, 3, 1, 2);
}

/// Puts the channels of a sequence before its positions, as Conv and the poolings of ONNX read them, or last again.
[[nodiscard]] constexpr GraphOperator graph_sequence_transposed() {
    return GraphOperator("Transpose").integers("perm", 0, 2, 1);
}

/// The operators of a layer, in their order.
class GraphOperators : public impl::GraphList<GraphOperator, 16> {
public:
    template <std::same_as<GraphOperator>... Operators>
    constexpr GraphOperators(const Operators&... operators) {  // NOLINT: one operator is the usual answer
        (add(operators), ...);
    }
};

/// A layer that says what it is in an ONNX graph.
template <class L>
concept HasGraphOperators = requires(const Shape& input) {
    { L::onnx(input) } -> std::convertible_to<GraphOperators>;
};
/// The same of a layer that joins two values, by the extents of both.
template <class L>
concept HasGraphOperatorsOfTwo = requires(const Shape& input, const Shape& second_input) {
    { L::onnx(input, second_input) } -> std::convertible_to<GraphOperators>;
};

}}  // namespace cupola::CUPOLA_ABI
