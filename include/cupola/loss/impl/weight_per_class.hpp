// SPDX-License-Identifier: Apache-2.0
//
// WeightPerClass: the weights of the classes, or of the channels, of a loss.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A weight per class or channel, all 1 at first: assigned from a list, an array, a vector or a span.
template <std::size_t count>
class WeightPerClass {
public:
    /// Without a default constructor, so that `{}` is a list of no weights.
    [[nodiscard]] static constexpr WeightPerClass ones() {
        std::array<float, count> values{};
        values.fill(1.0F);
        return values;
    }
    /// Throws InvalidArgument for another number of weights: a std::array would set the missing ones to 0.
    constexpr WeightPerClass(std::initializer_list<float> weights)  // NOLINT: assigned from a list
        : WeightPerClass(std::span(weights.begin(), weights.size())) {}
    template <class Weights>
        requires(std::convertible_to<const Weights&, std::span<const float>> &&
                 !std::derived_from<Weights, WeightPerClass>)
    constexpr WeightPerClass(const Weights& weights) {  // NOLINT: assigned from a range
        const std::span<const float> given = weights;
        require(given.size() == count, "this loss needs ", count, " weights, one per class or channel, and ",
                given.size(), given.size() == 1 ? " was given" : " were given");
        std::copy(given.begin(), given.end(), values_.begin());
    }

    [[nodiscard]] static constexpr std::size_t size() { return count; }
    [[nodiscard]] constexpr const float* data() const { return values_.data(); }
    [[nodiscard]] constexpr const float* begin() const { return values_.data(); }
    [[nodiscard]] constexpr const float* end() const { return values_.data() + count; }
    [[nodiscard]] constexpr float operator[](std::size_t i) const { return values_[i]; }
    [[nodiscard]] constexpr float& operator[](std::size_t i) { return values_[i]; }

private:
    std::array<float, count> values_{};
};

}}}  // namespace cupola::CUPOLA_ABI::impl
