// SPDX-License-Identifier: Apache-2.0
//
// From the bytes of an image to the floats of a sample: `write_augmented` cuts a piece out, flips it, and changes
// brightness, contrast and scale by numbers that a transform has drawn before: `CenterCrop` here, which draws none,
// `TutorialAugmentation` in models/, or a user's own, which then works on `Cuda` too.
//
//   1. crop             height x width, from (y, x) on
//   2. flip             left to right
//   3. brightness       v + delta, one delta for all values; no clipping
//   4. contrast         (v - mean_c) * factor + mean_c, mean_c of the channel in the crop
//   5. standardization  (v - mean) / max(sqrt(variance), 1 / sqrt(n)) over all n values of the crop
//
// Images have 3 channels (red, green, blue) or 1 (grey). With 1, standardization cancels the contrast as well.
//
// Steps 3 to 5 are one multiply-add: standardization cancels the brightness exactly, and both contrast and
// standardization follow from each channel's sum and sum of squares, which are exact in integers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/impl/affine_pixels.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The augmentation of one image: the place of the crop, and the numbers drawn for steps 2 to 5.
struct DrawnAugmentation {
    std::int64_t y = 0, x = 0;
    bool flip = false;
    double delta = 0, factor = 1;
    bool standardize = true;
};

namespace impl {

/// Steps 3 to 5 as one multiply-add, from the sums over the `pixels` pixels of the crop. `channels` is 1 or 3.
[[nodiscard]] CUPOLA_HOST_DEVICE inline AffinePixels affine_of(PixelSums sums, std::int64_t pixels,
                                                               std::int64_t channels, const DrawnAugmentation& drawn) {
    if (channels == 1) all_channels_together(sums);
    const auto count = static_cast<double>(pixels), values = static_cast<double>(channels) * count;
    double mean_of_channel[3], mean = 0, within = 0, between = 0;
    for (std::size_t c = 0; c < 3; ++c) {
        const auto sum = static_cast<double>(sums.values[c]), squares = static_cast<double>(sums.squares[c]);
        mean_of_channel[c] = sum / count;
        mean += mean_of_channel[c] / 3;
        const double apart = count * squares - sum * sum;
        within += (apart > 0 ? apart : 0.0) / (3 * count * count);
    }
    for (const double channel : mean_of_channel) between += (channel - mean) * (channel - mean) / 3;
    const double variance = drawn.factor * drawn.factor * within + between;
    const double deviation = std::sqrt(variance), least = 1 / std::sqrt(values);
    const double scale = drawn.standardize ? 1 / (deviation > least ? deviation : least) : 1;
    const double offset = drawn.standardize ? -mean : drawn.delta;
    AffinePixels affine;
    affine.scale = static_cast<float>(drawn.factor * scale);
    for (std::size_t c = 0; c < 3; ++c) {
        affine.shift[c] = static_cast<float>((mean_of_channel[c] * (1 - drawn.factor) + offset) * scale);
    }
    return affine;
}

}  // namespace impl

/// Cuts `height` x `width` x channels out of the image of extents `shape` and writes them as floats to `to`. The crop
/// lies in the image (`cropped_shape`). It is taken in bands of rows that fit on the stack; most crops are one band.
inline void write_augmented(std::span<const std::uint8_t> image, const Shape& shape, std::int64_t height,
                            std::int64_t width, const DrawnAugmentation& drawn, float* to) {
    alignas(64) std::uint8_t band[impl::band_bytes + impl::chunk_lanes];
    const std::int64_t channels = shape.channels(), row_bytes = channels * width;
    const std::int64_t rows_per_band = impl::band_bytes / row_bytes;
    const auto cut = [&](std::int64_t row, std::int64_t rows) {
        const std::uint8_t* from = image.data() + ((drawn.y + row) * shape.width() + drawn.x) * channels;
        for (std::int64_t i = 0; i < rows; ++i) {
            impl::copy_row(from + i * shape.width() * channels, width, channels, drawn.flip, band + i * row_bytes);
        }
    };
    impl::PixelSums sums;
    const bool one_band = height <= rows_per_band;
    for (std::int64_t row = 0; row < height; row += rows_per_band) {
        const std::int64_t rows = std::min(rows_per_band, height - row);
        cut(row, rows);
        const std::int64_t bytes = rows * row_bytes, chunks = (bytes + impl::chunk_lanes - 1) / impl::chunk_lanes;
        std::memset(band + bytes, 0, static_cast<std::size_t>(chunks * impl::chunk_lanes - bytes));
        impl::add_pixel_sums(band, chunks, sums);
    }
    const impl::AffinePixels affine = impl::affine_of(sums, height * width, channels, drawn);
    for (std::int64_t row = 0; row < height; row += rows_per_band) {
        const std::int64_t rows = std::min(rows_per_band, height - row);
        if (!one_band) cut(row, rows);
        impl::write_affine_pixels(band, rows * row_bytes, affine, to + row * row_bytes);
    }
}

/// The extents of a crop of `height` x `width` from images of extents `input`. Throws InvalidArgument where it does not
/// fit into them.
[[nodiscard]] inline Shape cropped_shape(const Shape& input, std::int64_t height, std::int64_t width) {
    require(input.rank == 3 && (input.channels() == 1 || input.channels() == 3),
            "images are height x width x 1 (grey) or 3 (red, green, blue), not ", to_string(input));
    const std::int64_t max_width = impl::band_bytes / input.channels();
    require(height >= 1 && width >= 1 && height <= input.height() && width <= input.width() && width <= max_width,
            "a crop of ", height, " x ", width, " cannot be cut out of images of ", input.height(), " x ",
            input.width(), width > max_width ? text(" (at most ", max_width, " wide)") : std::string());
    return {height, width, input.channels()};
}

/// The transform for evaluations: the centre of the image, standardized, without random changes.
struct CenterCrop {
    std::int64_t height = 24, width = 24;
    bool standardize = true;

    /// The text by which two runs are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return text("CenterCrop ", height, " x ", width, standardize ? "" : ", not standardized");
    }
    [[nodiscard]] Shape output(const Shape& input) const { return cropped_shape(input, height, width); }
    void operator()(std::span<const std::uint8_t> image, const Shape& shape, const RandomStream& random,
                    float* to) const {
        require(image.size() == static_cast<std::size_t>(shape.size()), "an image of ", to_string(shape), " has ",
                shape.size(), " bytes, not ", image.size());
        static_cast<void>(output(shape));  // throws for an image that has no such part
        write_augmented(image, shape, height, width, draw(shape.height(), shape.width(), random), to);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE DrawnAugmentation draw(std::int64_t image_height, std::int64_t image_width,
                                                            const RandomStream&) const {
        DrawnAugmentation drawn;
        drawn.y = (image_height - height) / 2;
        drawn.x = (image_width - width) / 2;
        drawn.standardize = standardize;
        return drawn;
    }
};

}}  // namespace cupola::CUPOLA_ABI
