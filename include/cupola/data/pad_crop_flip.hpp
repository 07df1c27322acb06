// SPDX-License-Identifier: Apache-2.0
//
// The distortions of the residual networks for CIFAR (He et al. 2015), as TensorFlow's cifar10_estimator has them: the
// bytes of an image are scaled to x / 128 - 1, zeros are put around it, a piece of the image's own size is cut out, every
// place with equal probability, and it is flipped left to right with probability 1/2. There is no standardization. What is
// evaluated is scaled only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/philox.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

/// [0, 255] to [-1, 1).
[[nodiscard]] inline float scaled_pixel(std::uint8_t value) { return static_cast<float>(value) / 128.0F - 1.0F; }

}  // namespace impl

/// For training. Each distortion can be switched off by itself; with `crop` off the image stays where it is.
struct PadCropFlip {
    /// Zeros on each side: 4 make 40 x 40 of 32 x 32.
    std::int64_t padding = 4;
    bool crop = true, flip = true;

    /// The extents of a sample: the image's own. Throws InvalidArgument for what is no image, or a padding below 0.
    [[nodiscard]] Shape output(const Shape& input) const {
        constexpr std::int64_t most = 1 << 14;
        require(input.rank == 3, "images are height x width x channels, not ", to_string(input));
        require(padding >= 0 && padding <= most, "an image is padded with 0 to ", most, " zeros on each side, not ", padding);
        return input;
    }

    /// Writes one sample. Word 0 of `random` is the place of the piece, word 1 the flip, as in TutorialDistortions.
    void operator()(std::span<const std::uint8_t> image, const Shape& shape, const RandomStream& random,
                    float* to) const {
        const std::array<std::uint32_t, 4> words = random.words(0);
        const std::int64_t places = 2 * padding + 1;
        const std::int64_t place = crop ? uniform_below(words[0], static_cast<std::uint32_t>(places * places))
                                        : padding * places + padding;
        const bool mirrored = flip && (words[1] >> 31) != 0;
        const std::int64_t height = shape.height(), width = shape.width(), channels = shape.channels();
        const std::int64_t down = place / places - padding, right = place % places - padding;  // of the piece, in the image
        for (std::int64_t y = 0; y < height; ++y) {
            for (std::int64_t x = 0; x < width; ++x, to += channels) {
                const std::int64_t from_y = y + down, from_x = (mirrored ? width - 1 - x : x) + right;
                if (from_y < 0 || from_y >= height || from_x < 0 || from_x >= width) {
                    std::fill(to, to + channels, 0.0F);
                    continue;
                }
                const std::uint8_t* const from = image.data() + (from_y * width + from_x) * channels;
                for (std::int64_t c = 0; c < channels; ++c) to[c] = impl::scaled_pixel(from[c]);
            }
        }
    }
};

/// For evaluation: x / 128 - 1, and nothing else.
struct ScaledPixels {
    [[nodiscard]] Shape output(const Shape& input) const { return input; }
    void operator()(std::span<const std::uint8_t> image, const Shape&, const RandomStream&, float* to) const {
        std::transform(image.begin(), image.end(), to, impl::scaled_pixel);
    }
};

}  // namespace cupola::inline CUPOLA_ABI
