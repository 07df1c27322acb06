// SPDX-License-Identifier: Apache-2.0
//
// An image whose resized bytes are compared with Pillow's, and a hash of values for such comparisons.
#pragma once

#include "../standard.hpp"

#include <cupola/data/image.hpp>

namespace cupola_tests {

/// Smooth with jumps; no row or column is as another one.
[[nodiscard]] inline cupola::Image patterned(std::int64_t height, std::int64_t width, std::int64_t channels) {
    cupola::Image image{height, width, channels, {}};
    for (std::int64_t y = 0; y < height; ++y) {
        for (std::int64_t x = 0; x < width; ++x) {
            for (std::int64_t c = 0; c < channels; ++c) {
                const std::int64_t jump = (x * 5 + y * 3) % 7 == 0 ? 251 : 0;
                image.pixels.push_back(static_cast<std::uint8_t>(x * x * 7 + y * 13 + x * y * 3 + c * 50 + jump));
            }
        }
    }
    return image;
}

/// FNV-1a of the bytes.
template <class Value>
[[nodiscard]] std::uint64_t hash_of(const std::vector<Value>& values) {
    std::uint64_t hash = 14695981039346656037U;
    for (const std::byte byte : std::as_bytes(std::span(values)))
        hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211U;
    return hash;
}

}  // namespace cupola_tests
