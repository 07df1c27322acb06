// SPDX-License-Identifier: Apache-2.0
//
// Branches: a value of the list gets a name, and modules further down read it by that name.
//
//   Keep<"name">          names the value there; the list continues with it
//   Output<"name">        the same, and the value is an output of the network: a loss writes its gradient
//   AddFrom<"name">       the sum of the value before it and the named one, which have the same extents
//   MultiplyBy<"name">    the product of the value before it and the named one, which have the same extents, or one has
//                         the other's channels and no height and width, or those of one pixel, and is repeated
//   ConcatWith<"name">    the channels of the value before it, then those of the named one; the other extents are equal
//   From<"name">          the list continues with the named value; the value before it must be kept, to be read later
//   FromInput<"c", 4>     the list continues with another input: column "c" of the batch, float32 of these extents
//
//   struct UNet : Sequential<Input<64, 64, 1>,
//       Conv2d<16, 3>, ReLU, Keep<"fine">, MaxPool2d<2>,
//       Conv2d<16, 3>, ReLU, Keep<"coarse">, Conv2d<16, 3>, ReLU, AddFrom<"coarse">, ... , ConcatWith<"fine">, ...> {};
//
// A value may have any number of readers. Each of these modules is one layer of the flat list. A kept value is a view
// that costs nothing itself; its memory is reused after its last reader. A name stands for one value and is no layer's
// name. Inside a named Residual the block's name is prepended, as it is to layers' names: a reader in the block `a`
// finds `a.name`, or else `name`. The value before a FromInput must be kept too. Its column has the same name inside a
// block, and no gradient. A name that is not known, is given twice, is never read or is read before its Keep,
// and extents that do not fit, are each reported in one compiler diagnostic.
//
// In backward the readers by name share one gradient: the last of them writes it and the others add to it, and Keep
// adds it to the gradient of the module that follows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_string.hpp>
#include <cupola/layers/graph_operator.hpp>
#include <cupola/layers/layer.hpp>
#include <cupola/net/impl/kept_values.hpp>
#include <cupola/net/residual.hpp>
#include <cupola/ops/column_input.hpp>
#include <cupola/ops/concatenation.hpp>
#include <cupola/ops/product.hpp>
#include <cupola/ops/residual.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The layer of ConcatWith, whose output is completed where the second input is known.
struct Concatenation {
    static constexpr std::string_view block = "Concat", conflict = "cannot concatenate along channels";
    static constexpr LayerTraits traits{
        .backward_reads_input = false, .backward_reads_second_input = false, .backward_reads_output = false};

    static constexpr ShapeResult output(const Shape& input) { return input; }
    [[nodiscard]] static constexpr bool fits(const Shape& a, const Shape& b) {
        bool result = a.rank == b.rank;
        for (std::size_t i = 0; result && i + 1 < a.rank; ++i) result = a[i] == b[i];
        return result;
    }
    [[nodiscard]] static constexpr Shape joined(Shape a, const Shape& b) {
        a.extents[b.rank - 1] += b.channels();
        return a;
    }
    static constexpr GraphOperators onnx(const Shape& input) {
        return GraphOperator("Concat").input().second_input().integer("axis", graph_channel_axis(input));
    }

    template <class BuildContext>
    static FactoryOf<ops::Concatenation, BuildContext> operation(const BuildContext&) {
        return {};
    }
};

/// The layer of MultiplyBy, whose output is completed where the second input is known.
struct Product {
    static constexpr std::string_view block = "Multiply", conflict = "cannot multiply";
    static constexpr LayerTraits traits{.backward_reads_output = false};

    static constexpr ShapeResult output(const Shape& input) { return input; }
    /// Whether a value has one position, which fits each of another one's.
    [[nodiscard]] static constexpr bool repeats(const Shape& one, const Shape& other) {
        return one.size() == one.channels() && one.channels() == other.channels();
    }
    [[nodiscard]] static constexpr bool fits(const Shape& a, const Shape& b) {
        return a == b || repeats(a, b) || repeats(b, a);
    }
    [[nodiscard]] static constexpr Shape joined(const Shape& a, const Shape& b) { return a.size() < b.size() ? b : a; }
    /// A value of one position gets as many extents as the other one, in the order that the graph has them in.
    static constexpr GraphOperators onnx(const Shape& input, const Shape& second) {
        if (input.rank == second.rank) return GraphOperator("Mul").input().second_input();
        const bool first_repeats = input.size() < second.size();
        const Shape& whole = first_repeats ? second : input;
        GraphOperator reshape("Reshape"), product("Mul");
        first_repeats ? reshape.input() : reshape.second_input();
        GraphNumbers extents = graph_numbers(0);
        for (std::int64_t axis = 1; axis <= static_cast<std::int64_t>(whole.rank); ++axis)
            extents.list.add(axis == graph_channel_axis(whole) ? static_cast<double>(whole.channels()) : 1);
        reshape.constant(extents);
        first_repeats ? product.second_input() : product.input();
        return {reshape, product.previous()};
    }

    template <class BuildContext>
    static FactoryOf<ops::Product, BuildContext> operation(const BuildContext&) {
        return {};
    }
};

/// The layer of From. Its gradient is added to that of the value like the second gradient of a Fork.
struct Reread : Fork {
    static constexpr LayerKind kind = LayerKind::view;
};

/// The layer of FromInput, whose input is the column.
struct ColumnInput {
    static constexpr LayerTraits traits{.backward_reads_input = false, .backward_reads_output = false};

    static constexpr ShapeResult output(const Shape& input) { return input; }

    template <class BuildContext>
    static FactoryOf<ops::ColumnInput, BuildContext> operation(const BuildContext&) {
        return {};
    }
};

/// "AddFrom<skip>", which stands for the layer's type. Without quotation marks: compilers print a backslash before
/// them.
template <std::size_t module_size, std::size_t name_size>
[[nodiscard]] consteval auto module_text(const char (&module)[module_size], const FixedString<name_size>& name) {
    std::array<char, module_size + name_size> result{};  // the two brackets in place of the terminating zeros
    std::size_t size = 0;
    for (std::size_t i = 0; i + 1 < module_size; ++i) result[size++] = module[i];
    result[size++] = '<';
    for (const char c : name.view()) result[size++] = c;
    result[size++] = '>';
    return result;
}

}  // namespace impl

/// See the head of this file.
template <FixedString value_name>
struct Keep {
    static constexpr std::string_view name = value_name.view();
    using NamedValueLayer = impl::Fork;
    using Kept = Keep;
    static constexpr auto module_type = impl::module_text("Keep", value_name);
};

template <FixedString value_name>
struct AddFrom {
    using NamedValueLayer = impl::Add;
    using Kept = Keep<value_name>;
    static constexpr auto module_type = impl::module_text("AddFrom", value_name);
};

template <FixedString value_name>
struct MultiplyBy {
    using NamedValueLayer = impl::Product;
    using Kept = Keep<value_name>;
    static constexpr auto module_type = impl::module_text("MultiplyBy", value_name);
};

template <FixedString value_name>
struct ConcatWith {
    using NamedValueLayer = impl::Concatenation;
    using Kept = Keep<value_name>;
    static constexpr auto module_type = impl::module_text("ConcatWith", value_name);
};

template <FixedString value_name>
struct From {
    using NamedValueLayer = impl::Reread;
    using Kept = Keep<value_name>;
    static constexpr auto module_type = impl::module_text("From", value_name);
};

/// Another input of the network: `FromInput<"age", 4>` is the batch's column "age" of 4 values per sample.
template <FixedString column_name, std::int64_t... extents>
struct FromInput {
    using NamedValueLayer = impl::ColumnInput;
    static constexpr std::string_view column = column_name.view();
    static constexpr Shape shape{extents...};
    static constexpr auto module_type = impl::module_text("FromInput", column_name);
};

/// An output of the network: names the value there, as Keep does; a loss, or the caller, reads it. See net/plan.hpp.
template <FixedString value_name>
struct Output {
    static constexpr std::string_view name = value_name.view();
    using NamedValueLayer = impl::Fork;
    using Kept = Output;
    static constexpr bool is_output = true;
    static constexpr auto module_type = impl::module_text("Output", value_name);
};

}}  // namespace cupola::CUPOLA_ABI
