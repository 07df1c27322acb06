// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/batches.hpp>
#include <cupola/data/compose.hpp>
#include <cupola/data/random_crop_flip.hpp>
#include <cupola/data/random_resized_crop.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/models/image_preprocessing.hpp>

#include "../test.hpp"

#include "support.hpp"

using cupola_tests::random_images;

namespace {

/// Floats of other extents: the sums of neighbours.
struct Sums {
    Shape output(const Shape& input) const {
        require(input.size() % 2 == 0, "no neighbours");
        return {input.size() / 2};
    }
    template <class T>
    void operator()(std::span<const T> sample, const Shape&, const RandomStream&, float* to) const {
        for (std::size_t i = 0; i < sample.size(); i += 2) to[i / 2] = static_cast<float>(sample[i] + sample[i + 1]);
    }
};

constexpr RandomResizedCrop crop{.height = 6, .width = 5};
constexpr ImagePreprocessing preprocessing{.fit = {.height = 6, .width = 5}};
using Augmented = Compose<RandomResizedCrop, ImagePreprocessing>;

static_assert(Transforms<Augmented, ImageSet> && SampleTransform<Compose<RandomResizedCrop>, ImageSet>);
static_assert(!Transforms<Compose<RandomResizedCrop>, ImageSet>);                            // bytes stay bytes
static_assert(!SampleTransform<Compose<ImagePreprocessing, ImagePreprocessing>, ImageSet>);  // which takes bytes

}  // namespace

TEST_CASE("transforms one after the other make what each makes of the result of the one before") {
    const ImageSet set = random_images(4, 9, 12);
    const TrainingBatches<ImageSet, Augmented> batches(set, Compose{crop, preprocessing}, {.batch_size = 4, .seed = 3});
    CHECK(batches.columns()[0] == ColumnSpec{"input", ElementType::float32, {6, 5, 3}});
    const Compose all{crop, preprocessing, Standardization({1, 2, 3}, {2, 4, 8}), Sums{}};
    CHECK(all.output(set.sample_shape()) == Shape{45});
    for (std::uint32_t epoch = 0; epoch < 20; ++epoch) {
        const RandomStream random(3, RngDomain::augmentation, epoch, 1);
        std::vector<std::uint8_t> bytes(90);
        std::vector<float> scaled(90), standardized(90), sums(45), result(45), first_two(90);
        const Shape shape{6, 5, 3};
        crop(set.sample(1), set.sample_shape(), random, bytes.data());
        preprocessing(std::span<const std::uint8_t>(bytes), shape, random, scaled.data());
        Compose{crop, preprocessing}(set.sample(1), set.sample_shape(), random, first_two.data());
        CHECK(first_two == scaled);
        Standardization({1, 2, 3}, {2, 4, 8})(std::span<const float>(scaled), shape, random, standardized.data());
        Sums{}(std::span<const float>(standardized), shape, random, sums.data());
        all(set.sample(1), set.sample_shape(), random, result.data());
        CHECK(result == sums);
    }
}

TEST_CASE("two transforms that flip do so independently") {
    const ImageSet set = random_images(1, 6, 5);
    const RandomResizedCrop whole{.height = 6, .width = 5, .min_scale = 1, .min_ratio = 5.0 / 6, .max_ratio = 5.0 / 6};
    const Compose both{whole, RandomCropFlip{.padding = 0}};
    const Shape shape = set.sample_shape();
    std::vector<float> result(90), unflipped(90);
    ScaledPixels{}(set.sample(0), shape, RandomStream(0, RngDomain::user, 0, 0), unflipped.data());
    int flips = 0;
    for (std::uint32_t epoch = 0; epoch < 400; ++epoch) {
        both(set.sample(0), shape, RandomStream(3, RngDomain::augmentation, epoch, 0), result.data());
        flips += result == unflipped ? 0 : 1;
    }
    CHECK(std::abs(flips - 200) < 50);  // five deviations of the binomial distribution of 400 and 1 / 2
}

TEST_CASE("the extents are checked by each transform, and the description has all of them") {
    const Compose wrong{RandomResizedCrop{.height = 7, .width = 5}, preprocessing};
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(wrong.output(Shape{9, 12, 3}));
          }).starts_with("the network's images are 6 x 5 x 3, and what it is given is 7 x 5 x 3"));
    CHECK(message_of<InvalidArgument>([&] {
              static_cast<void>(Compose{crop, Sums{}, Sums{}}.output(Shape{9, 12, 3}));
          }) == "no neighbours");
    const std::string description = Compose{crop, Sums{}}.description();
    CHECK(description.starts_with("Compose; " + crop.description() + "; "));
    CHECK(description.ends_with("Sums"));
}
