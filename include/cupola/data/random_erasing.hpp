// SPDX-License-Identifier: Apache-2.0
//
// Random erasing (Zhong et al. 2017), as `RandomErasing` of torchvision: with some probability a rectangle of random
// area and proportions, at a random place of a sample of floats, gets one value or random numbers:
//
//   area     uniform in [min_scale, max_scale] of the image's
//   ratio    height / width, exp of a uniform number in [log(min_ratio), log(max_ratio)]
//   part     round(sqrt(area * ratio)) high and round(sqrt(area / ratio)) wide, anywhere in the image
//
// A rectangle that is not smaller than the image in both extents is drawn again; after 10 of them nothing is erased.
// Equal scales and ratios of 1 are Cutout's squares (DeVries, Taylor 2017) inside the image. It belongs after the
// transform that scales the values, in a Compose (data/compose.hpp): 0 is then the mean of all images.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A rectangle of an image.
struct ErasedPart {
    std::int64_t y = 0, x = 0, height = 0, width = 0;
    bool operator==(const ErasedPart&) const = default;
};

/// A transform of samples of floats, height x width x channels with any number of channels.
struct RandomErasing {
    double probability = 0.5;
    /// The rectangle's area as a fraction of the image's, and its height / width.
    double min_scale = 0.02, max_scale = 0.33, min_ratio = 0.3, max_ratio = 3.3;
    /// What the rectangle is filled with; `noise` takes standard normal numbers, one per value, in place of it.
    float value = 0;
    bool noise = false;

    /// The text by which two runs are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return text("RandomErasing, probability ", exact_text(probability), ", scale ", exact_text(min_scale), " to ",
                    exact_text(max_scale), ", ratio ", exact_text(min_ratio), " to ", exact_text(max_ratio), ", ",
                    noise ? "noise" : "value " + exact_text(static_cast<double>(value)));
    }
    /// The extents of a sample: the image's own. Throws InvalidArgument for samples that are not images and for options
    /// that are out of range.
    [[nodiscard]] Shape output(const Shape& input) const {
        require(input.rank == 3 && input.has_elements(), "images must be height x width x channels, not ",
                to_string(input));
        require(impl::is_finite(probability) && probability >= 0 && probability <= 1,
                "the probability of RandomErasing must be 0 to 1, not ", probability);
        require(impl::is_finite(min_scale) && impl::is_finite(max_scale) && min_scale > 0 && min_scale <= max_scale &&
                    max_scale <= 1,
                "RandomErasing erases 0 < min_scale <= max_scale <= 1 of an image's area, not ", min_scale, " to ",
                max_scale);
        require(impl::is_finite(min_ratio) && impl::is_finite(max_ratio) && min_ratio > 0 && min_ratio <= max_ratio,
                "RandomErasing erases parts with ratios of height to width 0 < min_ratio <= max_ratio, not ", min_ratio,
                " to ", max_ratio);
        require(impl::is_finite(value), "the value of RandomErasing must be finite, not ", value);
        return input;
    }

    /// The rectangle of an image of `image_height` x `image_width`, if one is erased. Block 48 of `random` decides, the
    /// blocks 49 to 58 are the attempts.
    [[nodiscard]] std::optional<ErasedPart> draw(std::int64_t image_height, std::int64_t image_width,
                                                 const RandomStream& random) const {
        if (static_cast<double>(uniform(random.words(first_block)[0])) >= probability) return std::nullopt;
        const auto place = [](std::uint32_t word, std::int64_t rest) {
            return static_cast<std::int64_t>(uniform_below(word, static_cast<std::uint32_t>(rest + 1)));
        };
        const double pixels = static_cast<double>(image_height) * static_cast<double>(image_width);
        for (std::uint32_t attempt = 1; attempt <= max_attempts; ++attempt) {
            const RandomWords<4> words = random.words(first_block + attempt);
            const double area = pixels * uniform_between(words[0], min_scale, max_scale);
            const double ratio = std::exp(uniform_between(words[1], std::log(min_ratio), std::log(max_ratio)));
            const double rows = std::nearbyint(std::sqrt(area * ratio)),
                         columns = std::nearbyint(std::sqrt(area / ratio));
            if (!(rows < static_cast<double>(image_height) && columns < static_cast<double>(image_width))) continue;
            const auto height = static_cast<std::int64_t>(rows), width = static_cast<std::int64_t>(columns);
            return ErasedPart{place(words[2], image_height - height), place(words[3], image_width - width), height,
                              width};
        }
        return std::nullopt;
    }

    /// Writes one sample. Throws as output(), and for an image with another number of values than its extents say.
    void operator()(std::span<const float> image, const Shape& shape, const RandomStream& random, float* to) const {
        static_cast<void>(output(shape));
        require(image.size() == static_cast<std::size_t>(shape.size()), "an image of ", to_string(shape), " has ",
                shape.size(), " values, not ", image.size());
        std::ranges::copy(image, to);
        const std::optional<ErasedPart> part = draw(shape.height(), shape.width(), random);
        if (!part) return;
        const std::int64_t row_values = part->width * shape.channels();
        for (std::int64_t y = 0; y < part->height; ++y) {
            float* const row = to + ((part->y + y) * shape.width() + part->x) * shape.channels();
            if (!noise) {
                std::fill_n(row, row_values, value);
                continue;
            }
            for (std::int64_t i = 0; i < row_values; ++i) {
                const RandomWords<4> words =
                    random.words(first_noise_block + static_cast<std::uint32_t>(y * row_values + i));
                row[i] = static_cast<float>(standard_normal(words[0], words[1]));
            }
        }
    }

private:
    static constexpr std::uint32_t first_block = 48, max_attempts = 10, first_noise_block = 1U << 20;
};

}}  // namespace cupola::CUPOLA_ABI
