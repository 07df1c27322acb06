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

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/data/image.hpp>
#include <cupola/data/impl/scratch.hpp>

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

/// How an axis of `from` pixels becomes one of `to`: pixel i is the sum of the pixels from ranges[i].first on, with
/// the weights from i * width on, whose sum is 1.
template <class Sum>
struct ResizedAxis {
    struct Range {
        std::int64_t first, count;
    };
    double scale, support;
    std::size_t width;
    Scratch<Range> ranges;
    Scratch<typename Sum::Weight> weights;

    ResizedAxis(std::int64_t from, std::int64_t to, ResizeFilter filter)
        : scale(static_cast<double>(from) / static_cast<double>(to)),
          support(support_of(filter) * std::max(scale, 1.0)),
          width(static_cast<std::size_t>(std::ceil(support)) * 2 + 1),
          ranges(static_cast<std::size_t>(to)),
          weights(static_cast<std::size_t>(to) * width) {
        Scratch<double> of_pixel(width);
        for (std::int64_t i = 0; i < to; ++i) {
            const double center = (static_cast<double>(i) + 0.5) * scale;
            const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
            const auto end = std::min(static_cast<std::int64_t>(center + support + 0.5), from);
            const std::span<double> own(of_pixel.data(), static_cast<std::size_t>(end - first));
            double sum = 0, place = static_cast<double>(first) - center + 0.5;
            for (double& weight : own) {
                weight = weight_of(filter, place / std::max(scale, 1.0));
                sum += weight;
                ++place;
            }
            std::ranges::transform(own, weights.data() + static_cast<std::size_t>(i) * width,
                                   [sum](double weight) { return Sum::stored(weight / sum); });
            ranges[static_cast<std::size_t>(i)] = {first, end - first};
        }
    }
};

/// Values of the extents outer x from x inner; those that follow another in one of the first two lie so far apart.
template <class Value>
struct StridedValues {
    const Value* first;
    std::int64_t outer, outer_stride, from, stride, inner;
};

/// Writes values of the extents outer x `count` x inner: the middle axis is resized.
template <class Value>
void resize_axis(const StridedValues<Value>& values, std::int64_t count, ResizeFilter filter, Value* to) {
    using Sum = ResizedSum<Value>;
    const ResizedAxis<Sum> axis(values.from, count, filter);
    Scratch<Sum> sums(static_cast<std::size_t>(values.inner));
    for (std::int64_t o = 0; o < values.outer; ++o) {
        for (std::size_t i = 0; i < axis.ranges.size(); ++i) {
            const auto [first, summands] = axis.ranges[i];
            const typename Sum::Weight* const weights = axis.weights.data() + i * axis.width;
            const Value* read = values.first + o * values.outer_stride + first * values.stride;
            std::ranges::fill(sums, Sum());
            for (std::int64_t j = 0; j < summands; ++j, read += values.stride) {
                const Value* value = read;
                for (Sum& sum : sums) sum.add(weights[j], *value++);
            }
            for (const Sum& sum : sums) *to++ = sum.value();
        }
    }
}

/// Writes an image of the extents `to_shape`. That of `shape` has its first pixel at `pixels`, and `row_values` values
/// from one row to the next.
template <class Value>
void resize_into(const Value* pixels, std::int64_t row_values, const Shape& shape, const Shape& to_shape,
                 ResizeFilter filter, Value* to) {
    const std::int64_t height = shape.height(), width = shape.width(), channels = shape.channels();
    const StridedValues<Value> rows{pixels, height, row_values, width, channels, channels};
    if (to_shape.height() == height) {
        if (to_shape.width() != width) return resize_axis(rows, to_shape.width(), filter, to);
        for (std::int64_t y = 0; y < height; ++y) to = std::copy_n(pixels + y * row_values, width * channels, to);
        return;
    }
    const std::int64_t to_row = to_shape.width() * channels;
    if (to_shape.width() == width)
        return resize_axis(StridedValues<Value>{pixels, 1, 0, height, row_values, to_row}, to_shape.height(), filter,
                           to);
    Scratch<Value> resized_rows(static_cast<std::size_t>(height * to_row));
    resize_axis(rows, to_shape.width(), filter, resized_rows.data());
    resize_axis(StridedValues<Value>{resized_rows.data(), 1, 0, height, to_row, to_row}, to_shape.height(), filter, to);
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
    BasicImage<Value> result{height, width, image.channels, {}, image.bits};
    result.pixels.resize(static_cast<std::size_t>(result.shape().size()));
    impl::resize_into(image.pixels.data(), image.width * image.channels, image.shape(), result.shape(), filter,
                      result.pixels.data());
    return result;
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
