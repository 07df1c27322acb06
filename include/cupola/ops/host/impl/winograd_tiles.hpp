// SPDX-License-Identifier: Apache-2.0
//
// The location of a convolution's tiles: the outputs in the image that is written, the inputs that they need in the
// image that is read, and which of both are outside.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cupola/ops/window.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// A convolution of stride 1 from `in` to `out` channels. Its input gradient is another such convolution, of the
/// gradient of its output.
struct TiledMap {
    WindowAxis height, width;
    std::int64_t batch = 0, in = 0, out = 0;

    [[nodiscard]] constexpr TiledMap adjoint() const {
        const auto turned = [](const WindowAxis& axis) {
            return WindowAxis{axis.output, axis.window, 1, axis.input, axis.window - 1 - axis.pad_begin, 0};
        };
        return {turned(height), turned(width), batch, out, in};
    }
};

/// `count` pixels from `first` on, of which [begin, end) are inside an axis of `size` pixels.
struct TileSpan {
    std::int64_t first, begin, end;
    constexpr TileSpan(std::int64_t from, std::int64_t count, std::int64_t size)
        : first(from), begin(std::clamp<std::int64_t>(-from, 0, count)), end(std::clamp(size - from, begin, count)) {}
};

/// The rows of a square of `Size` x `Size` pixels of an image, with zeros for those outside. The caller handles columns
/// outside: [columns.begin, columns.end) are inside.
template <class T, std::size_t Size>
struct TileRows {
    TileSpan columns;
    std::array<const T*, Size> row{};  // at column columns.begin

    /// `zeros` must contain as many pixels as a tile is wide.
    TileRows(const T* image, std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t y,
             std::int64_t x, const T* zeros)
        : columns(x, Size, width) {
        const TileSpan rows(y, Size, height);
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(Size); ++i) {
            const bool inside = i >= rows.begin && i < rows.end && columns.begin < columns.end;
            row[static_cast<std::size_t>(i)] =
                inside ? image + ((y + i) * width + x + columns.begin) * channels : zeros;
        }
    }
};

/// The tiles of a batch of images, `Tile` x `Tile` outputs each, in the order of the images.
template <std::size_t Tile>
struct TileGrid {
    static constexpr auto tile = static_cast<std::int64_t>(Tile);
    std::int64_t rows, columns, count;
    explicit TileGrid(const TiledMap& map)
        : rows((map.height.output + tile - 1) / tile),
          columns((map.width.output + tile - 1) / tile),
          count(map.batch * rows * columns) {}

    struct Place {
        std::int64_t image, y, x;  // of the first output
    };
    [[nodiscard]] Place place(std::int64_t index) const {
        const std::int64_t in_image = index % (rows * columns);
        return {index / (rows * columns), in_image / columns * tile, in_image % columns * tile};
    }
};

}}}  // namespace cupola::CUPOLA_ABI::impl
