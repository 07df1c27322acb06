// SPDX-License-Identifier: Apache-2.0
//
// TutorialAugmentation: the five augmentations of TensorFlow's CIFAR-10 tutorial in their order (data/augmentation.hpp
// has the formulas), with the same distributions:
//
//   1. crop             height x width, every place with equal probability
//   2. flip             left to right, with probability 1/2
//   3. brightness       delta uniform in [-63, 63)
//   4. contrast         factor uniform in [0.2, 1.8)
//   5. standardization
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/augmentation.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The augmentation for training. Each step can be switched off separately; with `crop` off the centre is cropped.
/// `CenterCrop` of data/augmentation.hpp makes the samples of an evaluation.
struct TutorialAugmentation {
    std::int64_t height = 24, width = 24;
    bool crop = true, flip = true, brightness = true, contrast = true, standardize = true;
    double max_brightness = 63;
    double min_contrast = 0.2, max_contrast = 1.8;

    /// The text by which two runs are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return text(
            "TutorialAugmentation ", height, " x ", width, crop ? "" : ", no crop", flip ? "" : ", no flip",
            brightness ? text(", brightness ", exact_text(max_brightness)) : std::string(),
            contrast ? text(", contrast ", exact_text(min_contrast), " to ", exact_text(max_contrast)) : std::string(),
            standardize ? "" : ", not standardized");
    }
    /// The extents of a sample made from images of `input`. Throws InvalidArgument if the crop does not fit, and for a
    /// brightness or a contrast that is negative, not finite or in the wrong order.
    [[nodiscard]] Shape output(const Shape& input) const {
        require(impl::is_finite(max_brightness) && max_brightness >= 0,
                "max_brightness must be finite and at least 0, not ", max_brightness);
        require(impl::is_finite(max_contrast) && min_contrast >= 0 && min_contrast <= max_contrast,
                "the contrast must be from at least 0 to a finite number that is not below it, not from ", min_contrast,
                " to ", max_contrast);
        return cropped_shape(input, height, width);
    }

    /// Writes one sample. `random` belongs to this image in this epoch only.
    void operator()(std::span<const std::uint8_t> image, const Shape& shape, const RandomStream& random,
                    float* to) const {
        write_augmented(image, shape, height, width, draw(shape.height(), shape.width(), random), to);
    }

    /// The random numbers of one image: word 0 is the crop's position, 1 the flip, 2 the brightness, 3 the contrast.
    [[nodiscard]] CUPOLA_HOST_DEVICE DrawnAugmentation draw(std::int64_t image_height, std::int64_t image_width,
                                                            const RandomStream& random) const {
        const RandomWords<4> words = random.words(0);
        const std::int64_t places_y = image_height - height + 1, places_x = image_width - width + 1;
        const std::int64_t place = crop ? uniform_below(words[0], static_cast<std::uint32_t>(places_y * places_x))
                                        : (places_y - 1) / 2 * places_x + (places_x - 1) / 2;
        return {place / places_x,
                place % places_x,
                flip && (words[1] >> 31) != 0,
                brightness ? uniform_between(words[2], -max_brightness, max_brightness) : 0.0,
                contrast ? uniform_between(words[3], min_contrast, max_contrast) : 1.0,
                standardize};
    }
};

}}  // namespace cupola::CUPOLA_ABI
