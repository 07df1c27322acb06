// SPDX-License-Identifier: Apache-2.0
//
// The text by which a layer describes itself in a network's summary: "Conv2d 64, 5 x 5, stride 2".
//
//   static constexpr LayerDescription description =
//       LayerDescription("Conv2d ", channels, ", ", kernel, " x ", kernel).add_if(stride != 1, ", stride ", stride);
//
// `description` may have any type that converts to std::string_view. A layer without a description is shown by its
// type's name.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <cupola/core/type_name.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Text of at most `capacity` characters, made of strings, integers and numbers; a longer text does not compile.
class LayerDescription {
public:
    static constexpr std::size_t capacity = 272;

    template <class... Parts>
    explicit constexpr LayerDescription(const Parts&... parts) {
        (add(parts), ...);
    }

    /// Adds the parts if `condition` holds.
    template <class... Parts>
    [[nodiscard]] constexpr LayerDescription add_if(bool condition, const Parts&... parts) const {
        LayerDescription result = *this;
        if (condition) (result.add(parts), ...);
        return result;
    }

    constexpr operator std::string_view() const { return {characters_, size_}; }  // NOLINT: it is text
    [[nodiscard]] constexpr const char* c_str() const { return characters_; }
    [[nodiscard]] constexpr bool empty() const { return size_ == 0; }

private:
    constexpr void add(std::string_view part) {
        for (const char c : part) {
            if (size_ == capacity) throw "a layer's description is longer than LayerDescription::capacity";
            characters_[size_++] = c;
        }
    }
    template <std::integral Integer>
    constexpr void add(Integer number) {
        bool negative = false;
        if constexpr (std::signed_integral<Integer>) negative = number < 0;
        if (negative) add("-");
        // Digit by digit, so that the least integer is not negated.
        if (const auto tens = number / 10; tens != 0) add(negative ? -tens : tens);
        const auto digit = static_cast<char>('0' + (negative ? -(number % 10) : number % 10));
        add(std::string_view(&digit, 1));
    }
    /// At most six decimals; a number below 0.001 that has more, and one from 1e6 on, is written as "1.111111e-4".
    constexpr void add(double number) {
        constexpr double small = 1e-3, large = 1e6, largest = 1e30;
        if (!(number > -largest && number < largest)) return add("no number");
        double scaled = number < 0 ? -number : number;
        int exponent = 0;
        if (scaled < small && !has_six_decimals(scaled)) {
            for (; scaled < 1; --exponent) scaled *= 10;
        } else if (scaled >= large) {
            for (; scaled >= 10; ++exponent) scaled /= 10;
        }
        impl::write_decimal(number < 0 ? -scaled : scaled, [&](std::string_view part) { add(part); });
        if (exponent == 0) return;
        add("e");
        add(exponent);
    }
    [[nodiscard]] static constexpr bool has_six_decimals(double below_one) {
        const double millionths = 1e6 * below_one;
        const double rest = millionths - static_cast<double>(static_cast<std::int64_t>(millionths + 0.5));
        return (rest < 0 ? -rest : rest) <= 1e-9 * millionths;
    }

    char characters_[capacity + 1]{};
    std::size_t size_ = 0;
};

namespace impl {

/// The error of the first of these sizes that is below 1, "has the kernel -3, which must be at least 1"; empty if none
/// is.
[[nodiscard]] constexpr LayerDescription size_error(
    std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes) {
    for (const auto& [name, size] : sizes) {
        if (size < 1) return LayerDescription("has the ", name, " ", size, ", which must be at least 1");
    }
    return LayerDescription();
}

}  // namespace impl

template <class L>
concept DescribesItself = requires {
    { L::description } -> std::convertible_to<std::string_view>;
};

/// The text that a summary shows for a layer.
template <class L>
[[nodiscard]] constexpr std::string_view description_of() {
    if constexpr (DescribesItself<L>) {
        return L::description;
    } else {
        return short_type_name<L>();
    }
}

}}  // namespace cupola::CUPOLA_ABI
