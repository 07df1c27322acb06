// SPDX-License-Identifier: Apache-2.0
//
// One replica's samples of one step.
#pragma once

#include <concepts>
#include <cstdint>

#include <cupola/core/extents.hpp>

namespace cupola::inline CUPOLA_ABI {

/// `size` samples of the extents `sample_shape`, channels last, one after another, in the device's memory, with one
/// label each. Owns nothing: the memory has to stay valid and unchanged until the step that takes it has returned.
///
///     BatchView{images.data(), labels.data(), 128, Net::input_shape}
struct BatchView {
    const float* samples = nullptr;
    const std::int32_t* labels = nullptr;
    std::int64_t size = 0;
    Shape sample_shape{};

    /// A batch without samples.
    constexpr BatchView() = default;
    /// `each_shape` has the extents of one sample; the functions that take the batch compare them with the network's.
    constexpr BatchView(const float* all_samples, const std::int32_t* all_labels, std::int64_t sample_count,
                        const Shape& each_shape)
        : samples(all_samples), labels(all_labels), size(sample_count), sample_shape(each_shape) {}
    /// Does not compile.
    template <std::integral Count>
    constexpr BatchView(const float*, const std::int32_t*, Count) {
        static_assert(sizeof(Count) == 0,
                      "a BatchView also needs the extents of a sample: BatchView{samples, labels, size, sample_shape}");
    }
};

}  // namespace cupola::inline CUPOLA_ABI
