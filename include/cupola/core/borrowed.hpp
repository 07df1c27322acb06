// SPDX-License-Identifier: Apache-2.0
//
// Borrowed<View>: a std::string_view, a std::span or a FunctionRef that is kept beyond the call. What it refers to has
// to outlive it, so a temporary string, vector or function object does not convert to it: a compile-time error, where a
// plain view would read freed memory.
#pragma once

#include <concepts>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Pointers to functions are excluded: a FunctionRef refers to the pointer itself.
template <class Source>
inline constexpr bool is_pointer_to_object =
    std::is_pointer_v<Source> && !std::is_function_v<std::remove_pointer_t<Source>>;

/// Whether what a view of `Source` refers to can outlive the expression that it is in.
template <class Source, class View>
inline constexpr bool outlives_expression =
    std::is_lvalue_reference_v<Source> || is_pointer_to_object<Source> ||
    std::ranges::enable_borrowed_range<std::remove_cv_t<Source>> || std::derived_from<Source, View>;

}  // namespace impl

/// Converts from all that View converts from: a variable, a literal, another view, a pointer.
template <class View>
struct Borrowed : View {
    constexpr Borrowed() = default;
    template <class Source>
        requires(!std::same_as<std::remove_cvref_t<Source>, Borrowed> && std::convertible_to<Source, View>)
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint leaves copies to the copy constructor
    constexpr Borrowed(Source&& source)  // implicit, as View's conversion is
        : View(std::forward<Source>(source)) {
        static_assert(impl::outlives_expression<Source, View>,
                      "a temporary is gone before it is read here, because nothing is copied: keep it in a variable");
    }
};

using BorrowedString = Borrowed<std::string_view>;
template <class T>
using BorrowedSpan = Borrowed<std::span<const T>>;

}}  // namespace cupola::CUPOLA_ABI
