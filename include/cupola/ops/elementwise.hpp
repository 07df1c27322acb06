// SPDX-License-Identifier: Apache-2.0
//
// Operations on elements. Such an operation is a formula: a function object over values, written once for all devices.
// A device supplies the loads, the stores and the loop (ops/host/elementwise.hpp, ops/cuda/elementwise.hpp):
//
//   for_each_element(context, count, formula, arrays...)
//
// calls formula(values...) for each i in [0, count), where each value is element i of one array. Elements after a
// pointer to const are read; for any other pointer the value is a reference, and what the formula assigns to it is
// stored. All values are read before any is stored, so an array may be passed twice. The order of the elements is not
// specified.
//
//   for_each_in_rows(context, rows, width, formula, matrices...)
//
// does so for the first `width` elements of each row of matrices, `Rows` or `RepeatedRows`, which may have rows of
// other lengths. A matrix that is only read may have the stride 0: each of its rows is the same.
//
// A formula that takes the element type itself receives elements, which suits formulas that only select; a formula of
// floats receives floats, which are rounded when they are stored. Use math::select or value_if below to select between
// results: g++ does not vectorise a loop with a conditional that it turns into a branch.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <cupola/core/element_type.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The type of a value of an array of `E`: const where the array's elements are.
template <class E, class Value>
using ValueLike = std::conditional_t<std::is_const_v<E>, const Value, Value>;

/// Whether a formula takes the elements themselves instead of floats.
template <class Formula, class... E>
inline constexpr bool takes_elements = std::is_invocable_v<const Formula&, E&...>;

/// The type in which a formula receives the elements of an array of `E`.
template <bool elements, class E>
using FormulaValue = std::conditional_t<elements, E, ValueLike<E, float>>;

/// to = from.
struct CopyElement {
    template <class T>
    CUPOLA_HOST_DEVICE void operator()(T& to, const T& from) const {
        to = from;
    }
};
/// Sets the first value by a formula, and the second to a copy of it.
template <class Formula>
struct WithCopy {
    Formula formula{};

    template <class T, class... Values>
        requires std::is_invocable_v<const Formula&, T&, Values&...>
    CUPOLA_HOST_DEVICE void operator()(T& first, T& second, Values&... values) const {
        formula(first, values...);
        second = first;
    }
};

/// Adds the second array to the first.
struct AddElement {
    CUPOLA_HOST_DEVICE void operator()(float& sum, float term) const { sum += term; }
};

/// Whether the bits of a 16-bit type are those of a value above 0: from 0x0001 to infinity.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_positive_bits(std::uint32_t bits, std::uint32_t infinity) {
    return static_cast<std::uint16_t>(bits - 1U) < infinity;
}

}  // namespace impl

/// The rows of a matrix: row i begins at `first` + i * `stride`.
template <class E>
struct Rows {
    using Element = E;
    E* first = nullptr;
    std::int64_t stride = 0;

    [[nodiscard]] CUPOLA_HOST_DEVICE E* row(std::int64_t i) const { return first + i * stride; }
};

/// The same with each row `times` times: row i begins at `first` + i / `times` * `stride`.
template <class E>
struct RepeatedRows {
    using Element = E;
    E* first = nullptr;
    std::int64_t stride = 0, times = 1;

    [[nodiscard]] CUPOLA_HOST_DEVICE E* row(std::int64_t i) const { return first + i / times * stride; }
};

/// A device with a `for_each_element` for elements of `T`, whose backend is included.
template <class Device, class T>
concept ComputesElements = requires(const typename Device::Context& context, T* to, const T* from) {
    for_each_element(context, std::int64_t{0}, impl::CopyElement{}, to, from);
};

/// x > 0 and x < 0; false for a NaN. For a 16-bit type the bits are compared, so that a register holds twice as many
/// elements.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_positive(float x) { return x > 0.0F; }
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_negative(float x) { return x < 0.0F; }
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_positive(BFloat16 x) {
    return impl::is_positive_bits(x.bits, 0x7F80U);
}
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_negative(BFloat16 x) {
    return impl::is_positive_bits(x.bits - 0x8000U, 0x7F80U);
}
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_positive(Float16 x) {
    return impl::is_positive_bits(x.bits, 0x7C00U);
}
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr bool is_negative(Float16 x) {
    return impl::is_positive_bits(x.bits - 0x8000U, 0x7C00U);
}

/// `value` where `keep` holds, else 0.
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr float value_if(bool keep, float value) { return keep ? value : 0.0F; }
/// The same without a conversion; it uses the bits, because g++ does not vectorise a selection between classes.
template <class T>
    requires(sizeof(T) == sizeof(std::uint16_t))
[[nodiscard]] CUPOLA_HOST_DEVICE constexpr T value_if(bool keep, T value) {
    value.bits = keep ? value.bits : std::uint16_t{0};
    return value;
}

}}  // namespace cupola::CUPOLA_ABI
