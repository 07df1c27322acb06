// SPDX-License-Identifier: Apache-2.0
//
// The state of a layer: the parameters, which are trained, and the buffers, which are not, such as running means. A
// layer that has some declares them as functions of the extents of its input:
//
//   static constexpr Parameters parameters(const Shape& input)   names, extents, initialisers and layouts in files
//   static constexpr Parameters buffers(const Shape& input)      the same
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <cupola/core/extents.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// How a parameter lies in files, whose layouts are PyTorch's: channels are last here and first there.
enum class FileLayout : std::uint8_t {
    /// As it lies here.
    as_here,
    /// [..., channels] here is [channels, ...] there.
    channels_first,
    /// [out, ..., channels] here is [out, channels, ...] there: the weight of a convolution of any number of axes.
    channels_second,
    /// The last axis is that of the layer's input, as of the weight of a linear layer or of a factor per feature. Where
    /// the features are those of an image that a Flatten lists in the order (height, width, channel), they have the
    /// order (channel, height, width) there.
    input_features
};

/// One parameter of a layer.
struct Parameter {
    /// The last part of its full name; empty for a parameter that has the name of the layer.
    const char* name = "";
    Shape shape{};
    Initializer initializer{};
    std::int64_t fan_in = 1, fan_out = 1;
    FileLayout layout = FileLayout::as_here;
};

/// The name of a parameter within its layer, for a message.
[[nodiscard]] constexpr std::string_view shown_name(const Parameter& parameter) {
    const std::string_view name = parameter.name;
    return name.empty() ? std::string_view("parameter") : name;
}

/// The error in the layout of a parameter of a layer with this input, completing "layer 3 (MyLayer) ..."; null if there
/// is none.
[[nodiscard]] constexpr const char* problem_of_layout(const Parameter& parameter, const Shape& input) {
    const Shape& shape = parameter.shape;
    switch (parameter.layout) {
        case FileLayout::as_here: return nullptr;
        case FileLayout::channels_first:
            return shape.rank > 0 ? nullptr : "has a parameter of the layout channels_first without an extent";
        case FileLayout::channels_second:
            return shape.rank > 1 ? nullptr
                                  : "has a parameter of the layout channels_second with fewer than two extents";
        case FileLayout::input_features:
            return shape.rank > 0 && input.rank > 0 && shape.channels() == input.channels()
                       ? nullptr
                       : "has a parameter of the layout input_features whose last extent is not that of its input";
    }
    return nullptr;
}

/// The parameters of a layer, at most `max_parameters`.
struct Parameters {
    std::array<Parameter, max_parameters> list{};
    std::size_t count = 0;

    constexpr Parameters() = default;
    template <std::same_as<Parameter>... P>
        requires(sizeof...(P) > 0 && sizeof...(P) <= max_parameters)
    constexpr Parameters(const P&... parameters) : list{parameters...}, count(sizeof...(P)) {}  // NOLINT
};

/// The parameters of a layer of a network, whose table has those of all layers in one array.
struct ParameterList {
    const Parameter* list = nullptr;
    std::size_t count = 0;
};

template <class L>
concept HasParameters = requires(const Shape& input) {
    { L::parameters(input) } -> std::convertible_to<Parameters>;
};

template <class L>
concept HasBuffers = requires(const Shape& input) {
    { L::buffers(input) } -> std::convertible_to<Parameters>;
};

template <class L>
[[nodiscard]] constexpr Parameters parameters_of(const Shape& input) {
    if constexpr (HasParameters<L>) return L::parameters(input);
    return {};
}

template <class L>
[[nodiscard]] constexpr Parameters buffers_of(const Shape& input) {
    if constexpr (HasBuffers<L>) return L::buffers(input);
    return {};
}

}}  // namespace cupola::CUPOLA_ABI
