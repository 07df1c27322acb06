// SPDX-License-Identifier: Apache-2.0
//
// The state of a layer: the parameters, which are trained, and the buffers, which are not, such as running means. A
// layer that has some declares them as functions of the extents of its input:
//
//   static constexpr Parameters parameters(const Shape& input)   names, extents and initialisers
//   static constexpr Parameters buffers(const Shape& input)      the same
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <cupola/core/extents.hpp>
#include <cupola/layers/initializer.hpp>
#include <cupola/ops/operation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// One parameter of a layer.
struct Parameter {
    const char* name = "";
    Shape shape{};
    Initializer initializer{};
    std::int64_t fan_in = 1, fan_out = 1;
};

/// The parameters of a layer, at most `max_parameters`.
struct Parameters {
    std::array<Parameter, max_parameters> list{};
    std::size_t count = 0;

    constexpr Parameters() = default;
    template <std::same_as<Parameter>... P>
        requires(sizeof...(P) > 0 && sizeof...(P) <= max_parameters)
    constexpr Parameters(const P&... parameters) : list{parameters...}, count(sizeof...(P)) {}  // NOLINT
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
    if constexpr (HasParameters<L>) {
        return L::parameters(input);
    } else {
        return {};
    }
}

template <class L>
[[nodiscard]] constexpr Parameters buffers_of(const Shape& input) {
    if constexpr (HasBuffers<L>) {
        return L::buffers(input);
    } else {
        return {};
    }
}

}}  // namespace cupola::CUPOLA_ABI
