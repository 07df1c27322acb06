// SPDX-License-Identifier: Apache-2.0
#include <cupola/models/image_preprocessing.hpp>

#include "../test.hpp"

#include <cupola/data/batches.hpp>
#include <cupola/models/convnext.hpp>
#include <cupola/models/mobilenet_v2.hpp>
#include <cupola/models/torchvision_resnet.hpp>
#include <cupola/models/torchvision_vgg.hpp>

#include "../throws_with.hpp"
#include "data/patterned.hpp"

using cupola_tests::hash_of, cupola_tests::patterned;

TEST_CASE("a photograph becomes the values of Pillow 9.4 and PyTorch 2.15, bit for bit") {
    const std::vector<float> sample = ImagePreprocessing{.fit = {40, 32, 32}}(patterned(50, 71, 3));
    REQUIRE(sample.size() == 32 * 32 * 3);
    CHECK(std::vector<float>(sample.begin(), sample.begin() + 3) ==
          std::vector<float>{-0.7479236125946045F, 0.1001400575041771F, 1.1933770179748535F});
    CHECK(hash_of(sample) == 0x4bde288811ca8e2bU);
}

TEST_CASE("the zoo has the numbers of the weights' own") {
    constexpr ImagePreprocessing of = ResNet18<>::preprocessing;
    CHECK(of.fit.shorter_side == 256);
    CHECK(of.fit.filter == ResizeFilter::bilinear);
    CHECK(of.fit.height == 224);
    CHECK(of.fit.width == 224);
    CHECK(of.source == "torchvision IMAGENET1K_V1");
    CHECK(ResNet34<>::preprocessing.fit.shorter_side == 256);
    CHECK(ResNet50<>::preprocessing.fit.shorter_side == 256);
    CHECK(VGG16<>::preprocessing.fit.height == 224);
    CHECK(MobileNetV2<>::preprocessing.fit.height == 224);
    CHECK(ConvNeXtTiny<>::preprocessing.fit.shorter_side == 236);
    CHECK(ResNet18<10, 64, 96>::preprocessing(patterned(130, 90, 3)).size() == 64 * 96 * 3);
    CHECK(ResNet18<10, 96, 64>::preprocessing(patterned(90, 130, 3)).size() == 64 * 96 * 3);
}

TEST_CASE("batches of images that are fitted already have the same values") {
    const ImagePreprocessing numbers{.fit = {40, 32, 32}};
    static_assert(SampleTransform<ImagePreprocessing, ImageSet>);
    const Image photograph = patterned(50, 71, 3), fitted = numbers.fit(photograph);
    CHECK(numbers.output(fitted.shape()) == Shape{32, 32, 3});
    std::vector<float> sample(32 * 32 * 3);
    numbers(fitted.pixels, fitted.shape(), RandomStream(0, RngDomain::user, 0, 0), sample.data());
    CHECK(sample == numbers(photograph));
    CHECK(numbers.description() == "ImagePreprocessing, mean 0.485 0.456 0.406, deviation 0.229 0.224 0.225");
    CHECK(
        message_of<InvalidArgument>([&] {
            (void)numbers.output({32, 30, 3});
        }) ==
        "the network's images are 32 x 32 x 3, and what it is given is 32 x 30 x 3: RandomResizedCrop makes them so, and "
        "the option fit of read_image_folder and list_image_folder");
}

TEST_CASE("its numbers are texts for other programs") {
    const std::vector<std::pair<std::string, std::string>> expected{
        {"preprocessing.shorter_side", "73"}, {"preprocessing.filter", "bicubic"},
        {"preprocessing.height", "64"},       {"preprocessing.width", "48"},
        {"preprocessing.mean", "0.5 0.25 0"}, {"preprocessing.deviation", "0.229 0.224 0.225"},
        {"preprocessing.source", "my own"}};
    CHECK(ImagePreprocessing{.fit = {73, 64, 48, ResizeFilter::bicubic}, .mean = {0.5F, 0.25F, 0}, .source = "my own"}
              .metadata() == expected);
}

TEST_CASE("images that are no photographs are errors, and so are numbers that cannot be") {
    const ImagePreprocessing small{.fit = {8, 8, 8}};
    CHECK(message_of<InvalidArgument>([&] { (void)small(patterned(9, 9, 1)); }) ==
          "photographs for a network have 3 channels of 8 bits, and this image has 1 of 8");
    CHECK(message_of<InvalidArgument>([&] { (void)small(Image{}); }) == "an image of 0 x 0 x 3 has 0 bytes of pixels");
    CHECK(message_of<InvalidArgument>([] {
              (void)ImagePreprocessing{.fit = {8, 9, 8}}(patterned(9, 9, 3));
          }) == "a crop of 9 x 8 cannot be cut out of an image of 8 x 8");
    CHECK(message_of<InvalidArgument>([] {
              (void)ImagePreprocessing{.fit = {8, 8, 8}, .deviation = {1, 0, 1}}(patterned(9, 9, 3));
          }) == "a deviation must be positive, not 0");
}
