// SPDX-License-Identifier: Apache-2.0
//
// Grey images of 64 x 64 with circles, squares and triangles, and the class of each pixel: a data set by a formula.
// peers/shapes.py has the same formula.
#pragma once

#include "../standard.hpp"

namespace shapes {

inline constexpr std::int64_t side = 64, classes = 4, shapes_per_image = 3;

/// 32 bits of a hash.
[[nodiscard]] constexpr std::uint32_t mixed(std::uint32_t x) {
    x ^= x >> 16;
    x *= 0x7FEB352DU;
    x ^= x >> 15;
    x *= 0x846CA68BU;
    return x ^ x >> 16;
}

/// Writes image `number`, with values in [0, 1], and the classes: 0 the background, 1 circles, 2 squares, 3 triangles. A
/// later shape covers an earlier one.
inline void draw(std::uint32_t number, float* image, std::int32_t* labels) {
    const std::uint32_t seed = mixed(number + 1);
    for (std::uint32_t i = 0; i < side * side; ++i) {
        image[i] = 0.2F * static_cast<float>(mixed(seed + 1000 + i) >> 8) / 16777216.0F;
        labels[i] = 0;
    }
    for (std::uint32_t s = 0; s < shapes_per_image; ++s) {
        const auto random = [&](std::uint32_t k, std::uint32_t below) {
            return static_cast<std::int32_t>(mixed(seed + 8 * s + k) % below);
        };
        const std::int32_t kind = 1 + random(0, 3), centre_x = 8 + random(1, 48), centre_y = 8 + random(2, 48),
                           radius = 5 + random(3, 8);
        const float brightness = 0.4F + 0.01F * static_cast<float>(random(4, 40));
        for (std::int32_t y = 0; y < side; ++y) {
            for (std::int32_t x = 0; x < side; ++x) {
                const std::int32_t dx = std::abs(x - centre_x), dy = y - centre_y;
                const bool inside = kind == 1   ? dx * dx + dy * dy <= radius * radius
                                    : kind == 2 ? dx < radius && std::abs(dy) < radius
                                                : dy >= -radius && dy <= radius && 2 * dx <= dy + radius;
                if (!inside) continue;
                image[y * side + x] += brightness;
                labels[y * side + x] = kind;
            }
        }
    }
}

/// `count` images from number `first` on, and their classes, one after another.
struct Batch {
    std::vector<float> images;
    std::vector<std::int32_t> labels;

    Batch(std::uint32_t first, std::int64_t count)
        : images(static_cast<std::size_t>(count * side * side)), labels(images.size()) {
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t at = i * side * side;
            draw(first + static_cast<std::uint32_t>(i), images.data() + at, labels.data() + at);
        }
    }
};

}  // namespace shapes
