// SPDX-License-Identifier: Apache-2.0
//
// Images are resized as Pillow and, for images of Pillow, torchvision resize them, with the same bytes: a network whose
// weights were trained on such images wants no others.
//
//   const Image image = center_cropped(resized_shorter_side(read_image("cat.jpg"), 256), 224, 224);
//
// A pixel of the result is a weighted sum of those around its place in the image. Reducing widens the filter by the
// factor, so every pixel of the image counts (antialiasing). Rows are resized first, then columns; each pass rounds
// bytes, with weights of 22 fractional bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/data/image.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The filters of Pillow's `Image.resize`: the weight of a pixel as a function of its distance. `bicubic` is Keys's
/// (1981) with a = -1/2, `lanczos` is of three lobes.
enum class ResizeFilter : std::uint8_t { box, bilinear, bicubic, lanczos };

/// "bilinear"
[[nodiscard]] constexpr std::string_view to_string(ResizeFilter filter) {
    constexpr std::string_view names[] = {"box", "bilinear", "bicubic", "lanczos"};
    return names[static_cast<std::size_t>(filter)];
}

namespace impl {

[[nodiscard]] constexpr double support_of(ResizeFilter filter) {
    switch (filter) {
        case ResizeFilter::box: return 0.5;
        case ResizeFilter::bilinear: return 1;
        case ResizeFilter::bicubic: return 2;
        default: return 3;
    }
}

[[nodiscard]] inline double sinc(double x) {
    return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x);
}

[[nodiscard]] inline double weight_of(ResizeFilter filter, double x) {
    if (filter == ResizeFilter::box) return x > -0.5 && x <= 0.5 ? 1 : 0;
    const double distance = std::abs(x);
    if (distance >= support_of(filter)) return 0;
    if (filter == ResizeFilter::bilinear) return 1 - distance;
    if (filter == ResizeFilter::lanczos) return sinc(x) * sinc(x / 3);
    constexpr double a = -0.5;
    if (distance < 1) return ((a + 2) * distance - (a + 3)) * distance * distance + 1;
    return (((distance - 5) * distance + 8) * distance - 4) * a;
}

/// How an axis of `from` pixels becomes one of `to`: pixel i is the sum of the pixels from ranges[i].first on, with
/// the weights from i * width on, whose sum is 1.
struct ResizedAxis {
    struct Range {
        std::int64_t first, count;
    };
    std::vector<Range> ranges{};
    std::vector<double> weights{};
    std::size_t width = 0;

    ResizedAxis(std::int64_t from, std::int64_t to, ResizeFilter filter) {
        const double scale = static_cast<double>(from) / static_cast<double>(to), widened = std::max(scale, 1.0);
        const double support = support_of(filter) * widened;
        width = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
        weights.resize(static_cast<std::size_t>(to) * width);
        for (std::int64_t i = 0; i < to; ++i) {
            const double center = (static_cast<double>(i) + 0.5) * scale;
            const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
            const auto end = std::min(static_cast<std::int64_t>(center + support + 0.5), from);
            const std::span<double> own(weights.data() + static_cast<std::size_t>(i) * width,
                                        static_cast<std::size_t>(end - first));
            double sum = 0, place = static_cast<double>(first) - center + 0.5;
            for (double& weight : own) {
                weight = weight_of(filter, place / widened);
                sum += weight;
                ++place;
            }
            for (double& weight : own) weight /= sum;
            ranges.push_back({first, end - first});
        }
    }
};

/// Sums of the values of an image with weights: of bytes with fractions of 22 bits, rounded and kept in 0 to 255.
template <class Value>
struct ResizedSum {
    using Weight = double;
    [[nodiscard]] static double stored(double weight) { return weight; }
    double sum = 0;
    void add(double weight, Value value) { sum += static_cast<double>(value) * weight; }
    [[nodiscard]] Value value() const { return static_cast<Value>(sum); }
};
template <>
struct ResizedSum<std::uint8_t> {
    static constexpr int bits = 22;
    using Weight = std::int32_t;
    [[nodiscard]] static Weight stored(double weight) {
        return static_cast<Weight>(weight * (1 << bits) + (weight < 0 ? -0.5 : 0.5));
    }
    std::int32_t sum = 1 << (bits - 1);
    void add(Weight weight, std::uint8_t value) { sum += weight * value; }
    [[nodiscard]] std::uint8_t value() const { return static_cast<std::uint8_t>(std::clamp(sum >> bits, 0, 255)); }
};

/// The middle axis of [outer][from][inner] values is resized.
template <class Value>
[[nodiscard]] std::vector<Value> resized_axis(const std::vector<Value>& values, std::int64_t outer, std::int64_t from,
                                              std::int64_t inner, std::int64_t to, ResizeFilter filter) {
    using Sum = ResizedSum<Value>;
    const ResizedAxis axis(from, to, filter);
    std::vector<typename Sum::Weight> weights(axis.weights.size());
    std::ranges::transform(axis.weights, weights.begin(), &Sum::stored);
    std::vector<Value> result(static_cast<std::size_t>(outer * to * inner));
    std::vector<Sum> sums(static_cast<std::size_t>(inner));
    Value* written = result.data();
    for (std::int64_t o = 0; o < outer; ++o) {
        const typename Sum::Weight* of_pixel = weights.data();
        for (const ResizedAxis::Range& range : axis.ranges) {
            const Value* read = values.data() + (o * from + range.first) * inner;
            std::ranges::fill(sums, Sum());
            for (std::int64_t j = 0; j < range.count; ++j) {
                for (Sum& sum : sums) sum.add(of_pixel[j], *read++);
            }
            for (const Sum& sum : sums) *written++ = sum.value();
            of_pixel += axis.width;
        }
    }
    return result;
}

}  // namespace impl

/// The image with `height` x `width` pixels. The values of floats are not rounded, and those of `bicubic` and `lanczos`
/// can be outside the image's range. Throws InvalidArgument for extents below 1 or above 65,535 and for an image
/// without pixels, or with another number of them than its extents say.
template <class Value>
[[nodiscard]] BasicImage<Value> resized(const BasicImage<Value>& image, std::int64_t height, std::int64_t width,
                                        ResizeFilter filter = ResizeFilter::bilinear) {
    impl::require_extents(height, width);
    impl::require_pixels(image);
    std::vector<Value> pixels = width == image.width ? image.pixels
                                                     : impl::resized_axis(image.pixels, image.height, image.width,
                                                                          image.channels, width, filter);
    if (height != image.height)
        pixels = impl::resized_axis(pixels, 1, image.height, width * image.channels, height, filter);
    return {height, width, image.channels, std::move(pixels), image.bits};
}

/// The image with its shorter side resized to `size` pixels and the other one in proportion, rounded down, as
/// `Resize(size)` of torchvision. Throws as resized().
template <class Value>
[[nodiscard]] BasicImage<Value> resized_shorter_side(const BasicImage<Value>& image, std::int64_t size,
                                                     ResizeFilter filter = ResizeFilter::bilinear) {
    impl::require_extents(size, size);
    impl::require_pixels(image);
    return image.height <= image.width ? resized(image, size, size * image.width / image.height, filter)
                                       : resized(image, size * image.height / image.width, size, filter);
}

/// The middle of an image, as `CenterCrop` of torchvision. Throws InvalidArgument where the image is smaller, which
/// torchvision fills with zeros.
template <class Value>
[[nodiscard]] BasicImage<Value> center_cropped(const BasicImage<Value>& image, std::int64_t height,
                                               std::int64_t width) {
    impl::require_extents(height, width);
    impl::require_pixels(image);
    require(height <= image.height && width <= image.width, "a crop of ", height, " x ", width,
            " cannot be cut out of an image of ", image.height, " x ", image.width);
    // Half a pixel is rounded to the even number.
    const auto half = [](std::int64_t rest) { return rest / 2 + (rest % 4 == 3 ? 1 : 0); };
    const std::int64_t top = half(image.height - height), left = half(image.width - width);
    BasicImage<Value> result{height, width, image.channels, {}, image.bits};
    result.pixels.reserve(static_cast<std::size_t>(result.shape().size()));
    for (std::int64_t y = top; y < top + height; ++y) {
        const auto row = image.pixels.begin() + (y * image.width + left) * image.channels;
        result.pixels.insert(result.pixels.end(), row, row + width * image.channels);
    }
    return result;
}

/// Makes an image of any size one of `height` x `width`: its shorter side is resized, and the middle is cut out.
struct ImageFit {
    std::int64_t shorter_side = 256, height = 224, width = 224;
    ResizeFilter filter = ResizeFilter::bilinear;

    /// Throws as resized_shorter_side() and center_cropped().
    template <class Value>
    [[nodiscard]] BasicImage<Value> operator()(const BasicImage<Value>& image) const {
        return center_cropped(resized_shorter_side(image, shorter_side, filter), height, width);
    }
};

}}  // namespace cupola::CUPOLA_ABI
