// SPDX-License-Identifier: Apache-2.0
//
// The name of a type as the compiler writes it, without our namespace: for error sentences and summaries.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

template <class T>
constexpr std::string_view function_name() {
    return __PRETTY_FUNCTION__;
}

inline constexpr std::size_t name_begin = function_name<double>().find("double");
inline constexpr std::size_t name_tail = function_name<double>().size() - name_begin - std::string_view("double").size();

}  // namespace impl

/// "Conv2d<64, 5>" for `cupola::Conv2d<64, 5>`; the enclosing namespaces of the outermost name are left out.
template <class T>
[[nodiscard]] constexpr std::string_view type_name() {
    std::string_view name = impl::function_name<T>();
    // g++ appends "; std::string_view = ..." inside the brackets; the type ends where `double` ended, or at that mark.
    name = name.substr(impl::name_begin, name.size() - impl::name_begin - impl::name_tail);
    const std::size_t arguments = name.find('<');
    const std::size_t scope = name.substr(0, arguments).rfind("::");
    return scope == std::string_view::npos ? name : name.substr(scope + 2);
}

namespace impl {

/// "Name<1, 2" of "Name<1, 2, Option{...}>": up to the last of the integers that the arguments begin with.
[[nodiscard]] constexpr std::string_view leading_integers(std::string_view name) {
    const std::size_t open = name.find('<');
    if (open == std::string_view::npos) return name;
    std::size_t end = open;
    for (std::size_t i = open + 1; i < name.size(); ++i) {
        if (name[i] == ',' || name[i] == '>') {
            end = i;
            if (name[i] == '>') break;
            if (i + 1 < name.size() && name[i + 1] == ' ') ++i;
        } else if ((name[i] < '0' || name[i] > '9') && name[i] != '-') {
            break;
        }
    }
    return end == open ? name : name.substr(0, end);
}

template <class T>
struct ShortTypeName {
    static constexpr std::string_view prefix = leading_integers(type_name<T>());
    static constexpr bool closed = prefix.size() != type_name<T>().size();
    static constexpr auto characters = [] {
        std::array<char, prefix.size() + (closed ? 1 : 0)> result{};
        for (std::size_t i = 0; i < prefix.size(); ++i) result[i] = prefix[i];
        if (closed) result[prefix.size()] = '>';
        return result;
    }();
};

}  // namespace impl

/// The name with the options after its sizes left out: "Conv2d<64, 5>" for any strides and initialisers.
template <class T>
[[nodiscard]] constexpr std::string_view short_type_name() {
    return {impl::ShortTypeName<T>::characters.data(), impl::ShortTypeName<T>::characters.size()};
}

}  // namespace cupola::inline CUPOLA_ABI
