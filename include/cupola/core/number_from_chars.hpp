// SPDX-License-Identifier: Apache-2.0
//
// std::from_chars for any number: libc++ 19 has none for floating-point numbers.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <version>

#include <locale.h>

#include <cupola/core/abi.hpp>
#include <cupola/core/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// std::from_chars of a floating-point number in the general format, with the same bits, by strtof and strtod of the C
/// library in the locale "C", where the decimal separator is a point.
[[nodiscard]] std::from_chars_result from_chars_by_strtod(const char* begin, const char* end, float& value);
[[nodiscard]] std::from_chars_result from_chars_by_strtod(const char* begin, const char* end, double& value);

}  // namespace impl

/// std::from_chars: an optional minus sign, no plus sign and no blank before the number; decimal digits, a point and an
/// exponent, or inf or nan in a floating-point number. `value` stays as it was on an error.
template <class Number>
[[nodiscard]] std::from_chars_result number_from_chars(const char* begin, const char* end, Number& value) {
#ifndef __cpp_lib_to_chars
    if constexpr (std::floating_point<Number>)
        return impl::from_chars_by_strtod(begin, end, value);
    else
#endif
        return std::from_chars(begin, end, value);
}

namespace impl {

[[nodiscard]] inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether the text [begin, end) begins with `lower` in lower or upper case letters.
[[nodiscard]] inline bool begins_with_word(const char* begin, const char* end, std::string_view lower) {
    if (end - begin < static_cast<std::ptrdiff_t>(lower.size())) return false;
    for (const char c : lower) {
        if ((*begin++ | 0x20) != c) return false;
    }
    return true;
}

/// The end of "inf", "infinity", "nan" or "nan(letters, digits and underscores)"; `begin` if the text begins with none
/// of them.
[[nodiscard]] inline const char* end_of_word(const char* begin, const char* end) {
    if (begins_with_word(begin, end, "infinity")) return begin + 8;
    if (begins_with_word(begin, end, "inf")) return begin + 3;
    if (!begins_with_word(begin, end, "nan")) return begin;
    const char* at = begin + 3;
    if (at == end || *at != '(') return at;
    do {
        ++at;
    } while (at != end && (is_digit(*at) || *at == '_' || ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z')));
    return at != end && *at == ')' ? at + 1 : begin + 3;
}

template <class Number>
[[nodiscard]] std::from_chars_result from_chars_by(Number (*convert)(const char*, char**, locale_t), const char* begin,
                                                   const char* end, Number& value) {
    static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
    const char* const first = begin + (begin != end && *begin == '-' ? 1 : 0);
    if (const char* const stop = end_of_word(first, end); stop != first) {
        // Only the first three letters: glibc derives a NaN's bits from what follows in parentheses.
        value = convert(std::string(begin, first + 3).c_str(), nullptr, c_locale);
        return {stop, std::errc()};
    }
    const char* at = first;
    bool has_digits = false, is_zero = true;
    for (bool has_point = false; at != end && (is_digit(*at) || (*at == '.' && !has_point)); ++at) {
        if (*at == '.') {
            has_point = true;
        } else {
            has_digits = true;
            is_zero = is_zero && *at == '0';
        }
    }
    if (!has_digits) return {begin, std::errc::invalid_argument};
    if (at != end && (*at == 'e' || *at == 'E')) {
        const char* exponent = at + 1;
        if (exponent != end && (*exponent == '+' || *exponent == '-')) ++exponent;
        if (exponent != end && is_digit(*exponent)) {
            while (exponent != end && is_digit(*exponent)) ++exponent;
            at = exponent;
        }
    }
    const Number found = convert(std::string(begin, at).c_str(), nullptr, c_locale);
    if (!is_finite(found) || (magnitude_bits(found) == 0 && !is_zero)) return {at, std::errc::result_out_of_range};
    value = found;
    return {at, std::errc()};
}

inline std::from_chars_result from_chars_by_strtod(const char* begin, const char* end, float& value) {
    return from_chars_by<float>(&strtof_l, begin, end, value);
}
inline std::from_chars_result from_chars_by_strtod(const char* begin, const char* end, double& value) {
    return from_chars_by<double>(&strtod_l, begin, end, value);
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
