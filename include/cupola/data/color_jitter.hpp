// SPDX-License-Identifier: Apache-2.0
//
// Random brightness, contrast, saturation and hue, as `ColorJitter` of torchvision, with the bytes of its functions for
// images of Pillow. Each is a blend of the image with a degenerate one, x = d + factor * (x - d), truncated and kept in
// 0 to 255:
//
//   brightness   d = 0
//   contrast     d = the mean of the image's grey values, rounded
//   saturation   d = the pixel's grey value, 0.299 red + 0.587 green + 0.114 blue, rounded
//   hue          the hue of 256 steps is turned by int(hue * 255) steps
//
// A factor is uniform in [max(0, 1 - option), 1 + option], the hue, of which 1 is a whole turn, in [-option, option]; 0
// switches a step off. The order of the steps is random. For images of bytes; Compose (data/compose.hpp) joins it with
// other transforms.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

enum class ColorStep : std::uint8_t { brightness, contrast, saturation, hue };

/// The factors of the steps, the part of a turn by which the hue is turned, and the order of the steps.
struct ColorAdjustment {
    double brightness = 1, contrast = 1, saturation = 1, hue = 0;
    std::array<ColorStep, 4> order = {ColorStep::brightness, ColorStep::contrast, ColorStep::saturation,
                                      ColorStep::hue};
    bool operator==(const ColorAdjustment&) const = default;
};

namespace impl {

/// A larger factor makes no other bytes: each difference is at least 1.
inline constexpr double max_color_factor = 256;

/// Pillow's conversion to grey.
[[nodiscard]] inline std::uint8_t grey_of(const std::uint8_t* pixel) {
    return static_cast<std::uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
}

/// Pillow's Image.blend, in float: the product is exact in double, so no compiler makes it a part of the sum.
[[nodiscard]] inline std::uint8_t blended(std::uint8_t degenerate, std::uint8_t value, float factor) {
    const auto moved = static_cast<float>(static_cast<double>(factor) * (value - degenerate));
    return static_cast<std::uint8_t>(std::clamp(static_cast<float>(degenerate) + moved, 0.0F, 255.0F));
}

/// Turns the hue of a pixel of red, green and blue by `steps` of 256, by Pillow's conversions from RGB to HSV and back,
/// which round to bytes between them.
inline void turn_hue(std::uint8_t* pixel, std::uint8_t steps) {
    const int red = pixel[0], green = pixel[1], blue = pixel[2];
    const int most = std::max({red, green, blue}), least = std::min({red, green, blue});
    if (most == least) return;
    const auto range = static_cast<float>(most - least);
    const auto below = [&](int color) { return static_cast<double>(static_cast<float>(most - color) / range); };
    float turn = 0;
    if (red == most) {
        turn = static_cast<float>(below(blue) - below(green));
    } else if (green == most) {
        turn = static_cast<float>(2 + below(red) - below(blue));
    } else {
        turn = static_cast<float>(4 + below(green) - below(red));
    }
    turn = static_cast<float>(std::fmod(static_cast<double>(turn) / 6 + 1, 1.0));
    const auto hue = static_cast<std::uint8_t>(static_cast<int>(static_cast<double>(turn) * 255) + steps);
    const int saturation = static_cast<int>(static_cast<double>(range / static_cast<float>(most)) * 255);
    const auto value = static_cast<std::uint8_t>(most);
    if (saturation == 0) {
        std::fill_n(pixel, 3, value);
        return;
    }
    const double place = hue * 6.0 / 255.0;
    const int sextant = static_cast<int>(place);
    const double part = static_cast<double>(static_cast<float>(place - sextant));
    const double chroma = static_cast<double>(static_cast<float>(saturation / 255.0));
    const auto reduced = [&](double by) { return static_cast<std::uint8_t>(std::llround(most * (1 - by))); };
    const std::uint8_t p = reduced(chroma), t = reduced(chroma * (1 - part)),
                       q = reduced(static_cast<double>(static_cast<float>(chroma * part)));
    const std::array<std::array<std::uint8_t, 3>, 6> colors = {
        {{value, t, p}, {q, value, p}, {p, value, t}, {p, q, value}, {t, p, value}, {value, p, q}}};
    std::ranges::copy(colors[static_cast<std::size_t>(sextant % 6)], pixel);
}

}  // namespace impl

/// Adjusts the colours of an image of 1 or 3 channels in place. A grey image has neither saturation nor hue. Throws
/// InvalidArgument for other numbers of channels, values that are not whole pixels, factors that are not 0 to 256, a
/// hue beyond half a turn, and an order that has a step twice.
inline void adjust_colors(std::span<std::uint8_t> pixels, std::int64_t channels, const ColorAdjustment& adjustment) {
    require(channels == 1 || channels == 3, "colours are adjusted of images of 1 or 3 channels, not ", channels);
    require(!pixels.empty() && pixels.size() % static_cast<std::size_t>(channels) == 0, pixels.size(),
            " bytes are not whole pixels of ", channels, channels == 1 ? " channel" : " channels");
    for (const double factor : {adjustment.brightness, adjustment.contrast, adjustment.saturation}) {
        require(impl::is_finite(factor) && factor >= 0 && factor <= impl::max_color_factor,
                "the factor of an adjustment must be 0 to ", impl::max_color_factor, ", not ", factor);
    }
    require(impl::is_finite(adjustment.hue) && std::abs(adjustment.hue) <= 0.5,
            "the hue is turned by -0.5 to 0.5, not by ", adjustment.hue);
    for (std::size_t k = 1; k < adjustment.order.size(); ++k) {
        const auto* const step = &adjustment.order[k];
        require(std::find(adjustment.order.data(), step, *step) == step, "the order of an adjustment has step ",
                static_cast<int>(*step), " twice: each of the four steps occurs once");
    }
    const bool colored = channels == 3;
    const auto blend = [&](double factor, const auto& degenerate_of) {
        if (factor == 1) return;
        const auto stride = static_cast<std::size_t>(channels);
        for (std::size_t i = 0; i < pixels.size(); i += stride) {
            const std::uint8_t degenerate = degenerate_of(&pixels[i]);
            for (std::size_t c = 0; c < stride; ++c)
                pixels[i + c] = impl::blended(degenerate, pixels[i + c], static_cast<float>(factor));
        }
    };
    const auto mean_grey = [&] {
        std::uint64_t sum = 0, count = pixels.size() / static_cast<std::size_t>(channels);
        for (std::size_t i = 0; i < pixels.size(); i += static_cast<std::size_t>(channels))
            sum += colored ? impl::grey_of(&pixels[i]) : pixels[i];
        return static_cast<std::uint8_t>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
    };
    for (const ColorStep step : adjustment.order) {
        switch (step) {
            case ColorStep::brightness:
                blend(adjustment.brightness, [](const std::uint8_t*) { return std::uint8_t{0}; });
                break;
            case ColorStep::contrast:
                if (adjustment.contrast == 1) break;
                blend(adjustment.contrast, [mean = mean_grey()](const std::uint8_t*) { return mean; });
                break;
            case ColorStep::saturation:
                if (!colored) break;
                blend(adjustment.saturation, [](const std::uint8_t* pixel) { return impl::grey_of(pixel); });
                break;
            case ColorStep::hue:
                if (!colored || adjustment.hue == 0) break;
                for (std::size_t i = 0; i < pixels.size(); i += 3)
                    impl::turn_hue(&pixels[i], static_cast<std::uint8_t>(static_cast<int>(adjustment.hue * 255)));
        }
    }
}

/// A transform of images of bytes with 1 or 3 channels, which stay bytes.
struct ColorJitter {
    double brightness = 0, contrast = 0, saturation = 0, hue = 0;

    /// The text by which two runs are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return text("ColorJitter, brightness ", exact_text(brightness), ", contrast ", exact_text(contrast),
                    ", saturation ", exact_text(saturation), ", hue ", exact_text(hue));
    }
    /// The extents of a sample: the image's own. Throws InvalidArgument for samples that are not images of 1 or 3
    /// channels, and options that are not 0 to 255 or, for the hue, 0 to 0.5.
    [[nodiscard]] Shape output(const Shape& input) const {
        require(input.rank == 3 && input.has_elements() && (input.channels() == 1 || input.channels() == 3),
                "images are height x width x 1 (grey) or 3 (red, green, blue), not ", to_string(input));
        const auto require_option = [](const char* name, double value, double most) {
            require(impl::is_finite(value) && value >= 0 && value <= most, "the ", name,
                    " of a ColorJitter must be 0 to ", most, ", not ", value);
        };
        require_option("brightness", brightness, impl::max_color_factor - 1);
        require_option("contrast", contrast, impl::max_color_factor - 1);
        require_option("saturation", saturation, impl::max_color_factor - 1);
        require_option("hue", hue, 0.5);
        return input;
    }

    /// The blocks 32 (the factors) and 33 (the order) of `random` are used.
    [[nodiscard]] ColorAdjustment draw(const RandomStream& random) const {
        const RandomWords<4> words = random.words(32);
        const auto factor = [&](std::uint32_t word, double option) {
            return uniform_between(word, std::max(0.0, 1 - option), 1 + option);
        };
        ColorAdjustment adjustment{factor(words[0], brightness), factor(words[1], contrast),
                                   factor(words[2], saturation), uniform_between(words[3], -hue, hue)};
        std::uint32_t permutation = uniform_below(random.words(33)[0], 24);
        for (std::uint32_t left = 4; left > 1; --left) {  // Fisher and Yates
            std::swap(adjustment.order[left - 1], adjustment.order[permutation % left]);
            permutation /= left;
        }
        return adjustment;
    }

    /// Writes one sample. Throws as output(), and for an image with another number of bytes than its extents say.
    void operator()(std::span<const std::uint8_t> image, const Shape& shape, const RandomStream& random,
                    std::uint8_t* to) const {
        static_cast<void>(output(shape));
        require(image.size() == static_cast<std::size_t>(shape.size()), "an image of ", to_string(shape), " has ",
                shape.size(), " bytes, not ", image.size());
        std::ranges::copy(image, to);
        adjust_colors({to, image.size()}, shape.channels(), draw(random));
    }
};

}}  // namespace cupola::CUPOLA_ABI
