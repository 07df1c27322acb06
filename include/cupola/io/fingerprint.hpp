// SPDX-License-Identifier: Apache-2.0
//
// fingerprint(data): identifies the contents of a data set, independently of its name and path: "50000 images, crc32c
// 1a2b3c4d". A run stores it in its checkpoints and compares it when it is resumed. Reads every sample once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include <cupola/core/element_type.hpp>
#include <cupola/core/error.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/io/crc32c.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// fingerprint() of every `step`-th sample; for a step above 1, the text states it.
template <Dataset Data>
[[nodiscard]] std::string fingerprint_of_part(const Data& data, std::int64_t step) {
    std::uint32_t sum = 0;
    for (std::int64_t i = 0; i < data.size(); i += step) {
        if constexpr (HasStoredSamples<Data>) {
            sum = crc32c(stored_elements(data, i), sum);
        } else {
            sum = crc32c(std::as_bytes(data.sample(i)), sum);
        }
    }
    if constexpr (HasTargets<Data>) {
        const Columns columns(data.target_columns());
        for (std::size_t c = 0; c < columns.size(); ++c) {
            for (std::int64_t i = 0; i < data.size(); i += step) {
                const std::span values(static_cast<const std::byte*>(static_cast<const void*>(data.target(i, c))),
                                       columns[c].bytes());
                sum = crc32c(values, sum);
            }
        }
    } else {
        for (std::int64_t i = 0; i < data.size(); i += step) {
            const std::int32_t label = data.label(i);
            sum = crc32c(std::as_bytes(std::span(&label, 1)), sum);
        }
    }
    char digits[16];
    std::snprintf(digits, sizeof digits, "%08x", sum);
    return text(data.size(), data.sample_shape().rank == 3 ? " images" : " samples", ", crc32c ",
                step == 1 ? std::string() : text("of every ", step, "th "), digits);
}

}  // namespace impl

/// The number of samples, and the checksum of their elements, one sample after another, and then of their labels or
/// targets. Samples of height x width x channels are called images.
template <Dataset Data>
[[nodiscard]] std::string fingerprint(const Data& data) {
    return impl::fingerprint_of_part(data, 1);
}

}}  // namespace cupola::CUPOLA_ABI
