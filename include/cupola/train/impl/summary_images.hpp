// SPDX-License-Identifier: Apache-2.0
//
// Conversion of values to pixels, by TensorFlow's rule for image summaries: if there are negative values, 0 is mapped
// to grey 128 and the value of the largest magnitude to 1 or 255; otherwise the largest value is mapped to 255. Values
// that are not finite are red, or white in a grey image.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/io/summary_sink.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Maps values to 0..255.
struct PixelScale {
    float scale = 0, offset = 0;

    explicit PixelScale(std::span<const float> values) {
        float least = 0, most = 0;
        for (const float v : values) {
            if (!is_finite(v)) continue;
            least = std::min(least, v);
            most = std::max(most, v);
        }
        constexpr float nothing = 1e-6F;  // TensorFlow's
        const bool both_signs = least < 0;
        const float largest = std::max(-least, most);
        offset = both_signs ? 128.0F : 0.0F;
        scale = largest < nothing ? 0.0F : (both_signs ? 127.0F : 255.0F) / largest;
    }
    [[nodiscard]] std::uint8_t operator()(float value) const {
        return static_cast<std::uint8_t>(std::clamp(value * scale + offset, 0.0F, 255.0F));
    }
};

/// One pixel of `channels` values.
inline void put_pixel(std::uint8_t* to, const float* from, std::int64_t channels, const PixelScale& scale) {
    const bool finite = std::all_of(from, from + channels, [](float v) { return is_finite(v); });
    for (std::int64_t c = 0; c < channels; ++c) {
        to[c] = finite ? scale(from[c]) : static_cast<std::uint8_t>(c == 0 ? 255 : 0);
    }
}

[[nodiscard]] inline bool shows_as_image(const Shape& shape) {
    return shape.rank == 3 && (shape.channels() == 1 || shape.channels() == 3);
}

/// One sample of this shape as an image.
[[nodiscard]] inline PixelImage sample_image(std::span<const float> values, const Shape& shape) {
    PixelImage result{shape.height(), shape.width(), shape.channels(), {}};
    result.pixels.resize(values.size());
    const PixelScale scale(values);
    const auto channels = static_cast<std::size_t>(shape.channels());
    for (std::size_t i = 0; i < values.size(); i += channels) {
        put_pixel(result.pixels.data() + i, values.data() + i, shape.channels(), scale);
    }
    return result;
}

/// Whether these are filters of a convolution (out x height x width x in) that can be shown as an image.
[[nodiscard]] inline bool shows_as_filters(const Shape& shape) {
    return shape.rank == 4 && (shape[3] == 1 || shape[3] == 3);
}

/// All filters with one common scale in a square of tiles with black lines between them, enlarged to about 400 pixels.
[[nodiscard, gnu::cold]] inline PixelImage filter_grid(std::span<const float> weights, const Shape& shape) {
    const std::int64_t filters = shape[0], height = shape[1], width = shape[2], channels = shape[3];
    std::int64_t columns = 1;
    while (columns * columns < filters) ++columns;
    const std::int64_t rows = (filters + columns - 1) / columns;
    constexpr std::int64_t wanted = 400;
    const std::int64_t zoom = std::max<std::int64_t>(1, wanted / (columns * width));
    const std::int64_t tile_height = height * zoom + 1, tile_width = width * zoom + 1;
    PixelImage result{rows * tile_height - 1, columns * tile_width - 1, channels, {}};
    result.pixels.resize(static_cast<std::size_t>(result.height * result.width * channels));
    const PixelScale scale(weights);
    for (std::int64_t f = 0; f < filters; ++f) {
        for (std::int64_t y = 0; y < height * zoom; ++y) {
            for (std::int64_t x = 0; x < width * zoom; ++x) {
                const std::int64_t from = ((f * height + y / zoom) * width + x / zoom) * channels;
                const std::int64_t to_row = f / columns * tile_height + y, to_column = f % columns * tile_width + x;
                put_pixel(result.pixels.data() + (to_row * result.width + to_column) * channels, weights.data() + from,
                          channels, scale);
            }
        }
    }
    return result;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
