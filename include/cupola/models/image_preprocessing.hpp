// SPDX-License-Identifier: Apache-2.0
//
// What is done to a photograph before a network of models/ sees it: the shorter side is resized, the middle is cut out,
// and the values are scaled to 0 to 1 and standardised per colour. It belongs to the weights: those that were trained
// with other numbers need these.
//
//   const std::vector<float> sample = ResNet18<>::preprocessing(read_image("cat.jpg"));
//
// The values are those of torchvision for an image of Pillow, bit for bit. As a transform of batches it standardises
// images that a data set has already fitted (ImageFolderOptions::fit).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/philox.hpp>
#include <cupola/data/image.hpp>
#include <cupola/data/resize.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct ImagePreprocessing {
    ImageFit fit{};
    /// Of red, green and blue, whose values are 0 to 1: ImageNet's.
    std::array<float, 3> mean = {0.485F, 0.456F, 0.406F}, deviation = {0.229F, 0.224F, 0.225F};
    /// The weights that were trained with it.
    std::string_view source = {};

    /// The sample of a photograph, fit.height x fit.width x 3 floats. Throws InvalidArgument for an image that is not
    /// of three channels of 8 bits, or has not the pixels that its extents say, and for numbers that cannot be.
    [[nodiscard]] std::vector<float> operator()(const Image& image) const {
        require(image.channels == 3 && image.bits == 8,
                "photographs for a network have 3 channels of 8 bits, and this image has ", image.channels, " of ",
                image.bits);
        const Image fitted = fit(image);
        std::vector<float> sample(fitted.pixels.size());
        write(fitted.pixels, sample.data());
        return sample;
    }

    /// The numbers as texts, for a file that another program reads: an ONNX file of a network with a constant
    /// `preprocessing` has them among its metadata.
    [[nodiscard, gnu::cold]] std::vector<std::pair<std::string, std::string>> metadata() const {
        const auto three = [](const std::array<float, 3>& of) { return text(of[0], ' ', of[1], ' ', of[2]); };
        return {{"preprocessing.shorter_side", text(fit.shorter_side)},
                {"preprocessing.filter", std::string(to_string(fit.filter))},
                {"preprocessing.height", text(fit.height)},
                {"preprocessing.width", text(fit.width)},
                {"preprocessing.mean", three(mean)},
                {"preprocessing.deviation", three(deviation)},
                {"preprocessing.source", std::string(source)}};
    }

    /// As a transform of batches: the extents of a sample, which are those of fit. Throws InvalidArgument for others.
    [[nodiscard]] Shape output(const Shape& input) const {
        const Shape fitted{fit.height, fit.width, 3};
        require(input == fitted, "the network's images are ", to_string(fitted), ", and what it is given is ",
                to_string(input),
                ": RandomResizedCrop makes them so, and the option fit of read_image_folder and list_image_folder");
        return fitted;
    }
    void operator()(std::span<const std::uint8_t> image, const Shape& shape, const RandomStream&, float* to) const {
        static_cast<void>(output(shape));
        write(image, to);
    }
    /// The text by which two runs are compared.
    [[nodiscard, gnu::cold]] std::string description() const {
        return text("ImagePreprocessing, mean ", mean[0], ' ', mean[1], ' ', mean[2], ", deviation ", deviation[0], ' ',
                    deviation[1], ' ', deviation[2]);
    }

private:
    void write(std::span<const std::uint8_t> pixels, float* to) const {
        for (std::size_t c = 0; c < 3; ++c) {
            require(impl::is_finite(mean[c]), "a mean must be finite, not ", mean[c]);
            require(impl::is_finite(deviation[c]) && deviation[c] > 0, "a deviation must be positive, not ",
                    deviation[c]);
        }
        for (std::size_t i = 0; i < pixels.size(); ++i)
            to[i] = (static_cast<float>(pixels[i]) / 255 - mean[i % 3]) / deviation[i % 3];
    }
};

/// That of torchvision's first weights (IMAGENET1K_V1), for networks whose images have other extents too: the middle is
/// 224 of `resized` parts of the shorter side.
[[nodiscard]] constexpr ImagePreprocessing torchvision_preprocessing(std::int64_t height, std::int64_t width,
                                                                     std::int64_t resized = 256) {
    const std::int64_t longer = height < width ? width : height;
    return {.fit = {.shorter_side = longer * resized / 224, .height = height, .width = width},
            .source = "torchvision IMAGENET1K_V1"};
}

}}  // namespace cupola::CUPOLA_ABI
