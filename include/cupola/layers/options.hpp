// SPDX-License-Identifier: Apache-2.0
//
// Options of layers, in any order after their sizes: `Conv2d<64, 5, stride(2), valid, no_bias, weights(he_normal())>`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cupola/core/fixed_string.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct StrideOption {
    std::int64_t value = 1;
    bool operator==(const StrideOption&) const = default;
};
struct PadOption {
    std::int64_t value = -1;
    bool operator==(const PadOption&) const = default;
};
/// Height and width of a window, and of the stride and padding of one, where they differ.
struct WindowOption {
    std::int64_t height = 0, width = 0;
    bool operator==(const WindowOption&) const = default;
};
struct StridesOption {
    std::int64_t height = 1, width = 1;
    bool operator==(const StridesOption&) const = default;
};
struct PadsOption {
    std::int64_t height = -1, width = -1;
    bool operator==(const PadsOption&) const = default;
};
struct DilationOption {
    std::int64_t value = 1;
    bool operator==(const DilationOption&) const = default;
};
struct DilationsOption {
    std::int64_t height = 1, width = 1;
    bool operator==(const DilationsOption&) const = default;
};
struct OutputPaddingOption {
    std::int64_t value = 0;
    bool operator==(const OutputPaddingOption&) const = default;
};
struct OutputPaddingsOption {
    std::int64_t height = 0, width = 0;
    bool operator==(const OutputPaddingsOption&) const = default;
};
struct GroupsOption {
    std::int64_t value = 1;
    /// As many groups as the input has channels.
    bool depthwise = false;
    bool operator==(const GroupsOption&) const = default;
};
struct CeilModeOption {
    bool value = false;
    bool operator==(const CeilModeOption&) const = default;
};
struct CountPaddingOption {
    bool value = true;
    bool operator==(const CountPaddingOption&) const = default;
};
struct PerPositionOption {
    bool value = false;
    bool operator==(const PerPositionOption&) const = default;
};
struct BiasOption {
    bool value = true;
    bool operator==(const BiasOption&) const = default;
};
struct AffineOption {
    bool value = false;
    bool operator==(const AffineOption&) const = default;
};
struct WeightsOption {
    Initializer value;
    bool operator==(const WeightsOption&) const = default;
};
struct BiasesOption {
    Initializer value;
    bool operator==(const BiasesOption&) const = default;
};

struct TanhApproximationOption {
    bool value = false;
    bool operator==(const TanhApproximationOption&) const = default;
};
struct WeightPerChannelOption {
    bool value = false;
    bool operator==(const WeightPerChannelOption&) const = default;
};
struct PaddingIdOption {
    std::int64_t value = -1;
    bool operator==(const PaddingIdOption&) const = default;
};

namespace impl {

/// One to four numbers, one for all channels or one per channel; the count is 0 if there are none or more than four.
struct NumbersOption {
    static constexpr std::size_t capacity = 4;
    Number value[capacity]{};
    std::size_t count = 0;

    [[nodiscard]] constexpr double at(std::size_t channel) const { return value[count == 1 ? 0 : channel]; }
    bool operator==(const NumbersOption&) const = default;
};
template <std::convertible_to<double>... N>
[[nodiscard]] constexpr NumbersOption numbers_option(N... numbers) {
    if constexpr (sizeof...(N) > NumbersOption::capacity) {
        return {};
    } else {
        return {{Number(static_cast<double>(numbers))...}, sizeof...(N)};
    }
}

}  // namespace impl

struct MeansOption {
    impl::NumbersOption value;
    bool operator==(const MeansOption&) const = default;
};
struct DeviationsOption {
    impl::NumbersOption value;
    bool operator==(const DeviationsOption&) const = default;
};

[[nodiscard]] constexpr WindowOption window(std::int64_t height, std::int64_t width) { return {height, width}; }
/// The window of a convolution.
[[nodiscard]] constexpr WindowOption kernel(std::int64_t height, std::int64_t width) { return {height, width}; }
[[nodiscard]] constexpr StrideOption stride(std::int64_t value) { return {value}; }
[[nodiscard]] constexpr StridesOption stride(std::int64_t height, std::int64_t width) { return {height, width}; }
/// This number of zeros on each side (for a maximum, of elements that are never the maximum), as PyTorch's padding;
/// with an even input and a stride, `same` pads the end only.
[[nodiscard]] constexpr PadOption pad(std::int64_t value) { return {value}; }
/// Above and below the first number, left and right the second.
[[nodiscard]] constexpr PadsOption pad(std::int64_t height, std::int64_t width) { return {height, width}; }
/// The distance between neighbouring elements of a window in the input, as PyTorch's dilation.
[[nodiscard]] constexpr DilationOption dilation(std::int64_t value) { return {value}; }
[[nodiscard]] constexpr DilationsOption dilation(std::int64_t height, std::int64_t width) { return {height, width}; }
/// The rows and columns that a transposed convolution adds at the end of its output, as PyTorch's output_padding.
[[nodiscard]] constexpr OutputPaddingOption output_padding(std::int64_t value) { return {value}; }
[[nodiscard]] constexpr OutputPaddingsOption output_padding(std::int64_t height, std::int64_t width) {
    return {height, width};
}
/// The input's channels and the layer's are divided into so many ranges of the same size, and a channel reads the range
/// of the input at the place of its own: as PyTorch's groups.
[[nodiscard]] constexpr GroupsOption groups(std::int64_t value) { return {value}; }
[[nodiscard]] constexpr WeightsOption weights(Initializer value) { return {value}; }
[[nodiscard]] constexpr BiasesOption biases(Initializer value) { return {value}; }
/// The id of Embedding whose positions are zeros.
[[nodiscard]] constexpr PaddingIdOption padding_id(std::int64_t id) { return {id}; }
/// The constants of FromBytes.
template <std::convertible_to<double>... N>
[[nodiscard]] constexpr MeansOption means(N... numbers) {
    return {impl::numbers_option(numbers...)};
}
template <std::convertible_to<double>... N>
[[nodiscard]] constexpr DeviationsOption deviations(N... numbers) {
    return {impl::numbers_option(numbers...)};
}
inline constexpr BiasOption no_bias{false};
/// Linear is applied to the channels of each position, as PyTorch's where channels are last.
inline constexpr PerPositionOption per_position{true};
/// GELU by a hyperbolic tangent, as PyTorch's approximate="tanh".
inline constexpr TanhApproximationOption tanh_approximation{true};
/// PReLU has one weight per channel in place of one for all.
inline constexpr WeightPerChannelOption weight_per_channel{true};
/// InstanceNorm2d has a weight and a bias, as with PyTorch's affine=True.
inline constexpr AffineOption with_affine{true};
/// As many groups as the input has channels.
inline constexpr GroupsOption depthwise{1, true};
/// The extents of a pooling's output are rounded up, as by PyTorch's ceil_mode=True.
inline constexpr CeilModeOption ceil_mode{true};
/// Whether the elements of pad(n) are zeros of a mean, PyTorch's count_include_pad, or are left out.
inline constexpr CountPaddingOption count_padding{true}, ignore_padding{false};
inline constexpr Padding same = Padding::same;
inline constexpr Padding valid = Padding::valid;

namespace impl {

/// The option of type `Option` among `options`, or `fallback`.
template <class Option, class... Options>
[[nodiscard]] constexpr Option option_or(Option fallback, Options... options) {
    [[maybe_unused]] const auto take = [&](auto option) {
        if constexpr (std::same_as<decltype(option), Option>) fallback = option;
    };
    (take(options), ...);
    return fallback;
}

/// How many of the types are `Option`.
template <class Option, class... Options>
inline constexpr int times_given = (0 + ... + (std::same_as<Options, Option> ? 1 : 0));

/// Whether no two of `options` have the same type: they would contradict each other.
template <class... Options>
[[nodiscard]] constexpr bool given_once(Options...) {
    return ((times_given<Options, Options...> == 1) && ...);
}

/// `Option` is without const and without reference because nvcc treats decltype(options) as decltype((options)).
template <class Option, class... Known>
inline constexpr bool one_of = (std::same_as<Option, Known> || ...);

/// A size of a window in both directions, given as one number or as two.
struct WindowSides {
    std::int64_t height = 0, width = 0;
    bool known = true;

    [[nodiscard]] constexpr bool square() const { return height == width; }
    [[nodiscard]] constexpr std::int64_t least() const { return height < width ? height : width; }
    bool operator==(const WindowSides&) const = default;
};
/// A number, or an option of one of the types `Known`.
template <class... Known, class Given>
[[nodiscard]] constexpr WindowSides window_sides(const Given& given) {
    if constexpr (std::integral<Given>) {
        return {static_cast<std::int64_t>(given), static_cast<std::int64_t>(given)};
    } else if constexpr (!one_of<Given, Known...>) {
        return {.known = false};
    } else if constexpr (requires { given.value; }) {
        return {given.value, given.value};
    } else {
        return {given.height, given.width};
    }
}
/// A size that is an option of one number, or else of two; not known if both are given.
template <class One, class Two, class... Options>
[[nodiscard]] constexpr WindowSides sides_option(Options... options) {
    constexpr int ones = times_given<One, Options...>, twos = times_given<Two, Options...>;
    WindowSides sides =
        twos > 0 ? window_sides<Two>(option_or(Two{}, options...)) : window_sides<One>(option_or(One{}, options...));
    sides.known = ones + twos < 2;
    return sides;
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
