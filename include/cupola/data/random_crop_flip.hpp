// SPDX-License-Identifier: Apache-2.0
//
// The augmentation of the residual networks for CIFAR (He et al. 2015), as TensorFlow's cifar10_estimator has them: the
// image is put into a black frame, bytes of 0, a part of the original size is cut out, every position with equal
// probability, and flipped left to right with probability 1/2; bytes are scaled to x / 128 - 1, so that the frame is
// -1. There is no standardization. For evaluation images are only scaled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/impl/affine_pixels.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The position of the cut: its upper left corner in the image, and whether it is flipped afterwards.
struct DrawnPiece {
    std::int64_t y = 0, x = 0;
    bool flip = false;
};

/// [0, 255] to [-1, 1).
[[nodiscard]] inline float scaled_pixel(std::uint8_t value) { return static_cast<float>(value) / 128.0F - 1.0F; }

inline void scale_pixels(const std::uint8_t* from, std::int64_t count, float* to) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = scaled_pixel(from[i]);
}

/// Scales `width` pixels of a row, right to left if `flip`.
inline void scale_row(const std::uint8_t* row, std::int64_t width, std::int64_t channels, bool flip, float* to) {
    if (!flip) return scale_pixels(row, width * channels, to);
    // Mirrored as bytes, a piece at a time from the right, and scaled as the vectors that they make.
    constexpr std::int64_t piece = 256;
    std::uint8_t mirrored[3 * piece + 1];
    const bool by_pieces = channels == 1 || channels == 3;
    for (std::int64_t done = 0; by_pieces && done < width; done += piece) {
        const std::int64_t here = std::min(piece, width - done);
        copy_row(row + channels * (width - done - here), here, channels, true, mirrored);
        scale_pixels(mirrored, channels * here, to + channels * done);
    }
    for (std::int64_t x = 0; !by_pieces && x < width; ++x)
        scale_pixels(row + (width - 1 - x) * channels, channels, to + x * channels);
}

}  // namespace impl

/// For training. Each augmentation can be switched off by itself; with `crop` off the image stays where it is.
struct RandomCropFlip {
    /// Black pixels on each side: 4 make 40 x 40 of 32 x 32.
    std::int64_t padding = 4;
    bool crop = true, flip = true;

    /// The text by which two runs are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return text("RandomCropFlip, padding ", padding, crop ? "" : ", no crop", flip ? "" : ", no flip");
    }
    /// The extents of a sample: the image's own. Throws InvalidArgument for samples that are not images, or a padding
    /// below 0.
    [[nodiscard]] Shape output(const Shape& input) const {
        constexpr std::int64_t limit = 1 << 14;
        require(input.rank == 3, "images must be height x width x channels, not ", to_string(input));
        require(padding >= 0 && padding <= limit, "the padding must be 0 to ", limit, " pixels on each side, not ",
                padding);
        return input;
    }

    /// Writes one sample. Word 0 of `random` is the place of the piece, word 1 the flip, as in TutorialAugmentation.
    void operator()(std::span<const std::uint8_t> image, const Shape& shape, const RandomStream& random,
                    float* to) const {
        const std::int64_t height = shape.height(), width = shape.width(), channels = shape.channels();
        const auto [down, right, mirrored] = draw(height, width, random);
        // The columns of the sample that show the image, and where the leftmost of those pixels lies in a row of it.
        const std::int64_t begin = mirrored ? std::max<std::int64_t>(0, right) : std::max<std::int64_t>(0, -right);
        const std::int64_t end = mirrored ? std::min(width, width + right) : std::min(width, width - right);
        const std::int64_t first = mirrored ? width - end + right : begin + right;
        constexpr float black = -1.0F;  // scaled_pixel(0)
        for (std::int64_t y = 0; y < height; ++y, to += width * channels) {
            const std::int64_t from_y = y + down;
            if (from_y < 0 || from_y >= height || begin >= end) {
                std::fill(to, to + width * channels, black);
                continue;
            }
            std::fill(to, to + begin * channels, black);
            impl::scale_row(image.data() + (from_y * width + first) * channels, end - begin, channels, mirrored,
                            to + begin * channels);
            std::fill(to + end * channels, to + width * channels, black);
        }
    }

    [[nodiscard]] CUPOLA_HOST_DEVICE impl::DrawnPiece draw(std::int64_t, std::int64_t,
                                                           const RandomStream& random) const {
        const RandomWords<4> words = random.words(0);
        const std::int64_t places = 2 * padding + 1;
        const std::int64_t place =
            crop ? uniform_below(words[0], static_cast<std::uint32_t>(places * places)) : padding * places + padding;
        return {place / places - padding, place % places - padding, flip && (words[1] >> 31) != 0};
    }
};

/// For evaluation: x / 128 - 1, and nothing else.
struct ScaledPixels {
    [[nodiscard]] Shape output(const Shape& input) const { return input; }
    void operator()(std::span<const std::uint8_t> image, const Shape&, const RandomStream&, float* to) const {
        impl::scale_pixels(image.data(), static_cast<std::int64_t>(image.size()), to);
    }
    [[nodiscard]] CUPOLA_HOST_DEVICE impl::DrawnPiece draw(std::int64_t, std::int64_t, const RandomStream&) const {
        return {};
    }
};

}}  // namespace cupola::CUPOLA_ABI
