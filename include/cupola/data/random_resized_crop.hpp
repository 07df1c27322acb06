// SPDX-License-Identifier: Apache-2.0
//
// The augmentation with which networks for photographs are trained (Szegedy et al. 2014, "Going deeper with
// convolutions"): a part of random area and proportions, at a random place, is resized to the network's extents and
// flipped left to right. It is `RandomResizedCrop` of torchvision, followed by `RandomHorizontalFlip`:
//
//   area     uniform in [min_scale, max_scale] of the image's
//   ratio    width / height, exp of a uniform number in [log(min_ratio), log(max_ratio)]
//   part     round(sqrt(area * ratio)) wide and round(sqrt(area / ratio)) high, anywhere in the image
//
// A part that does not fit into the image is drawn again. After 10 of them it is the largest centred one whose
// proportions are allowed. The part is cut out before it is resized (data/resize.hpp), so pixels outside of it do not
// count, and the bytes are those of torchvision for an image of Pillow. Its values are not scaled: Compose
// (data/compose.hpp) puts a transform after it that does so.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/image.hpp>
#include <cupola/data/resize.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A part of an image, and whether it is flipped left to right after it has been resized.
struct DrawnPart {
    std::int64_t y = 0, x = 0, height = 0, width = 0;
    bool flip = false;
    bool operator==(const DrawnPart&) const = default;
};

/// A transform of images of bytes or floats, of any extents. Its values keep their type and range.
struct RandomResizedCrop {
    std::int64_t height = 224, width = 224;
    /// The part's area as a fraction of the image's, and its width / height.
    double min_scale = 0.08, max_scale = 1, min_ratio = 3.0 / 4, max_ratio = 4.0 / 3;
    /// The probability of a flip.
    double flip = 0.5;
    ResizeFilter filter = ResizeFilter::bilinear;

    /// The text by which two runs are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return text("RandomResizedCrop ", height, " x ", width, ", scale ", exact_text(min_scale), " to ",
                    exact_text(max_scale), ", ratio ", exact_text(min_ratio), " to ", exact_text(max_ratio), ", flip ",
                    exact_text(flip), ", ", to_string(filter));
    }
    /// The extents of a sample. Throws InvalidArgument for samples that are not images and for options that are out of
    /// range.
    [[nodiscard]] Shape output(const Shape& input) const {
        require_valid();
        require(input.rank == 3 && input.has_elements(), "images must be height x width x channels, not ",
                to_string(input));
        return {height, width, input.channels()};
    }

    /// The part of an image of `image_height` x `image_width`. The blocks 1 to 10 of `random` are the attempts, 11 is
    /// the flip.
    [[nodiscard]] DrawnPart draw(std::int64_t image_height, std::int64_t image_width,
                                 const RandomStream& random) const {
        DrawnPart part{0, 0, image_height, image_width,
                       static_cast<double>(uniform(random.words(max_attempts + 1)[0])) >= 1 - flip};
        const auto place = [](std::uint32_t word, std::int64_t rest) {
            return static_cast<std::int64_t>(uniform_below(word, static_cast<std::uint32_t>(rest + 1)));
        };
        const double rows = static_cast<double>(image_height), columns = static_cast<double>(image_width);
        for (std::uint32_t attempt = 1; attempt <= max_attempts; ++attempt) {
            const RandomWords<4> words = random.words(attempt);
            const double area = rows * columns * uniform_between(words[0], min_scale, max_scale);
            const double ratio = std::exp(uniform_between(words[1], std::log(min_ratio), std::log(max_ratio)));
            const double part_rows = std::nearbyint(std::sqrt(area / ratio)),
                         part_columns = std::nearbyint(std::sqrt(area * ratio));
            if (!(part_rows >= 1 && part_rows <= rows && part_columns >= 1 && part_columns <= columns)) continue;
            part.height = static_cast<std::int64_t>(part_rows);
            part.width = static_cast<std::int64_t>(part_columns);
            part.y = place(words[2], image_height - part.height);
            part.x = place(words[3], image_width - part.width);
            return part;
        }
        const auto rounded = [](double pixels) {
            return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::nearbyint(pixels)));
        };
        part.height = rounded(std::min(rows, columns / min_ratio));
        part.width = rounded(std::min(columns, rows * max_ratio));
        part.y = (image_height - part.height) / 2;
        part.x = (image_width - part.width) / 2;
        return part;
    }

    /// The part of an image, resized and flipped. Throws InvalidArgument for options that are out of range, a part that
    /// is not in the image, and an image with another number of values than its extents say.
    template <class Value>
    [[nodiscard]] BasicImage<Value> operator()(const BasicImage<Value>& image, const DrawnPart& part) const {
        require_valid();
        impl::require_pixels(image);
        BasicImage<Value> result{height, width, image.channels, {}, image.bits};
        result.pixels.resize(static_cast<std::size_t>(result.shape().size()));
        cut(image.pixels.data(), image.shape(), part, result.pixels.data());
        return result;
    }
    /// Writes one sample. Throws as output(), and for an image with another number of values than its extents say.
    template <class Value>
        requires std::same_as<Value, std::uint8_t> || std::same_as<Value, float>
    void operator()(std::span<const Value> image, const Shape& shape, const RandomStream& random,
                    std::type_identity_t<Value>* to) const {
        static_cast<void>(output(shape));
        require(image.size() == static_cast<std::size_t>(shape.size()), "an image of ", to_string(shape), " has ",
                shape.size(), " values, not ", image.size());
        cut(image.data(), shape, draw(shape.height(), shape.width(), random), to);
    }

private:
    static constexpr std::uint32_t max_attempts = 10;

    void require_valid() const {
        impl::require_extents(height, width);
        require(impl::is_finite(min_scale) && impl::is_finite(max_scale) && min_scale > 0 && min_scale <= max_scale &&
                    max_scale <= 1,
                "RandomResizedCrop takes a part of 0 < min_scale <= max_scale <= 1 of an image's area, not of ",
                min_scale, " to ", max_scale);
        require(impl::is_finite(min_ratio) && impl::is_finite(max_ratio) && min_ratio > 0 && min_ratio <= max_ratio,
                "RandomResizedCrop takes parts with ratios of width to height 0 < min_ratio <= max_ratio, not ",
                min_ratio, " to ", max_ratio);
        require(impl::is_finite(flip) && flip >= 0 && flip <= 1, "the probability of a flip must be 0 to 1, not ",
                flip);
    }

    template <class Value>
    void cut(const Value* image, const Shape& shape, const DrawnPart& part, Value* to) const {
        require(part.height >= 1 && part.width >= 1 && part.y >= 0 && part.x >= 0 &&
                    part.height <= shape.height() - part.y && part.width <= shape.width() - part.x,
                "a part of ", part.height, " x ", part.width, " at (", part.y, ", ", part.x,
                ") cannot be cut out of an image of ", shape.height(), " x ", shape.width());
        const std::int64_t channels = shape.channels(), row_values = shape.width() * channels;
        impl::resize_into(image + part.y * row_values + part.x * channels, row_values,
                          {part.height, part.width, channels}, {height, width, channels}, filter, to);
        for (std::int64_t y = 0; part.flip && y < height; ++y, to += width * channels) {
            for (std::int64_t left = 0, right = width - 1; left < right; ++left, --right)
                std::swap_ranges(to + left * channels, to + (left + 1) * channels, to + right * channels);
        }
    }
};

}}  // namespace cupola::CUPOLA_ABI
