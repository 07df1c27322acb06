// SPDX-License-Identifier: Apache-2.0
//
// Whether numbers in the host's memory are finite, and which one is not.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Whether no value is infinite or not a number, on the calling thread.
[[nodiscard]] inline bool all_finite(std::span<const float> values) {
    // The exponent of such a value is all ones: one more carries into the sign's place. In blocks of a constant size,
    // which compilers turn into vector instructions at every level of optimisation.
    constexpr std::size_t block = 64;
    std::uint32_t carried = 0;
    const auto look_at = [&](float value) {
        carried |= (std::bit_cast<std::uint32_t>(value) & 0x7FFF'FFFFU) + 0x0080'0000U;
    };
    const float* const data = values.data();
    std::size_t begin = 0;
    for (; begin + block <= values.size(); begin += block) {
        for (std::size_t i = 0; i < block; ++i) look_at(data[begin + i]);
    }
    for (; begin < values.size(); ++begin) look_at(data[begin]);
    return carried < 0x8000'0000U;
}

namespace impl {

/// "conv1.weight is nan at [0, 2, 1, 5]": the element number `place` of a tensor, with one index per extent.
[[nodiscard, gnu::cold]] std::string element_text(std::string_view name, const Shape& shape, std::size_t place,
                                                  float value);

}  // namespace impl

/// Describes the first value of a tensor that is infinite or not a number: "conv1.weight is nan at [0, 2, 1, 5]", with
/// one index per extent of `shape`. Empty if all are finite.
[[nodiscard, gnu::cold]] std::string non_finite_element(std::string_view name, const Shape& shape,
                                                        std::span<const float> values);

/// The same of samples of `shape` that lie one after another: "sample 2 is nan at [0, 5, 2]".
[[nodiscard, gnu::cold]] std::string non_finite_sample(const Shape& shape, std::span<const float> samples);

namespace impl {

inline std::string element_text(std::string_view name, const Shape& shape, std::size_t place, float value) {
    std::string indices;
    auto rest = static_cast<std::int64_t>(place);
    for (std::size_t i = shape.rank; i-- > 0;) {
        indices = text(rest % shape[i], indices.empty() ? "" : ", ", indices);
        rest /= shape[i];
    }
    return text(name, " is ", value, " at [", indices, ']');
}

}  // namespace impl

inline std::string non_finite_element(std::string_view name, const Shape& shape, std::span<const float> values) {
    if (all_finite(values)) return {};
    std::size_t place = 0;
    while (all_finite(values.subspan(place, 1))) ++place;
    return impl::element_text(name, shape, place, values[place]);
}

inline std::string non_finite_sample(const Shape& shape, std::span<const float> samples) {
    if (all_finite(samples)) return {};
    const auto size = static_cast<std::size_t>(shape.size());
    std::size_t sample = 0;
    while (all_finite(samples.subspan(sample * size, size))) ++sample;
    return non_finite_element(text("sample ", sample), shape, samples.subspan(sample * size, size));
}

}}  // namespace cupola::CUPOLA_ABI
