// SPDX-License-Identifier: Apache-2.0
//
// The name of a type as the compiler writes it, without our namespace: for error messages and summaries.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

template <class T>
constexpr std::string_view function_name() {
    return __PRETTY_FUNCTION__;
}

inline constexpr std::size_t name_begin = function_name<double>().find("double");
inline constexpr std::size_t name_tail =
    function_name<double>().size() - name_begin - std::string_view("double").size();

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

/// clang writes a long argument of a parameter of any type as "5L".
[[nodiscard]] constexpr bool is_suffix(char c) { return c == 'L' || c == 'U'; }

/// "Name<1, 2" of "Name<1, 2, Option{...}>": up to the last of the integers that the arguments begin with.
[[nodiscard]] constexpr std::string_view leading_integers(std::string_view name) {
    const std::size_t open = name.find('<');
    if (open == std::string_view::npos) return name;
    std::size_t end = open, begin = open + 1;
    for (std::size_t i = open + 1; i < name.size(); ++i) {
        if (name[i] == ',' || name[i] == '>') {
            end = i;
            if (name[i] == '>') break;
            if (i + 1 < name.size() && name[i + 1] == ' ') ++i;
            begin = i + 1;
        } else if ((name[i] < '0' || name[i] > '9') && name[i] != '-' && !(i > begin && is_suffix(name[i]))) {
            break;
        }
    }
    return end == open ? name : name.substr(0, end);
}

/// The value of a first argument that is a `Number`, which compilers write as "Number{4602678819172646912}": its bits.
[[nodiscard]] constexpr double leading_number(std::string_view name) {
    constexpr double none = std::numeric_limits<double>::infinity();  // nvcc compares no NaN in a constant
    constexpr std::string_view type = "Number{";
    const std::string_view first = name.substr(0, name.find(','));
    const std::size_t at = first.find(type);
    if (at == std::string_view::npos || first.find('<') > at) return none;
    std::uint64_t bits = 0;
    for (const char c : first.substr(at + type.size())) {
        if (c < '0' || c > '9') break;
        bits = 10 * bits + static_cast<std::uint64_t>(c - '0');
    }
    return std::bit_cast<double>(bits);
}

/// Writes a number of at most 1e6 with up to six decimals, through add(std::string_view).
template <class Add>
constexpr void write_decimal(double number, const Add& add) {
    if (number < 0) add("-");
    constexpr std::int64_t decimals = 1'000'000;
    auto rest = static_cast<std::int64_t>((number < 0 ? -number : number) * static_cast<double>(decimals) + 0.5);
    // Digits from the first of the integer part to the last that is not zero.
    for (std::int64_t unit = 1'000'000 * decimals; unit >= decimals || rest > 0; unit /= 10) {
        if (unit == decimals / 10) add(".");
        const char digit = static_cast<char>('0' + rest / unit % 10);
        if (unit <= decimals || rest >= unit) add(std::string_view(&digit, 1));
        if (unit <= decimals) rest %= unit;
    }
}

/// Writes a shortened name, "Conv2d<64, 5>" or "Dropout<0.5>", to `to` unless it is null; returns its length.
constexpr std::size_t write_short_name(std::string_view name, char* to) {
    std::size_t size = 0;
    const auto add = [&](std::string_view part) {
        for (const char c : part) {
            if (to != nullptr) to[size] = c;
            ++size;
        }
    };
    const double number = leading_number(name);
    if (!(number > -1e6 && number < 1e6)) {
        const std::string_view prefix = leading_integers(name);
        if (prefix.size() == name.size()) {
            add(name);
            return size;
        }
        const std::size_t open = prefix.find('<');
        add(prefix.substr(0, open));
        for (std::size_t i = open; i < prefix.size(); ++i) {
            if (!is_suffix(prefix[i])) add(prefix.substr(i, 1));
        }
        add(">");
        return size;
    }
    add(name.substr(0, name.find('<') + 1));
    write_decimal(number, add);
    add(">");
    return size;
}

template <class T>
struct ShortTypeName {
    static constexpr auto characters = [] {
        std::array<char, write_short_name(type_name<T>(), nullptr)> result{};
        write_short_name(type_name<T>(), result.data());
        return result;
    }();
};

}  // namespace impl

/// The name with the options after its sizes left out: "Conv2d<64, 5>" for any strides and initialisers. A number that
/// comes first is written as a decimal: "Dropout<0.5>".
template <class T>
[[nodiscard]] constexpr std::string_view short_type_name() {
    return {impl::ShortTypeName<T>::characters.data(), impl::ShortTypeName<T>::characters.size()};
}

}}  // namespace cupola::CUPOLA_ABI
