// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/encoded_images.hpp>

#include "../test.hpp"

#include <cupola/data/compose.hpp>
#include <cupola/data/image_file.hpp>
#include <cupola/data/one_hot_targets.hpp>
#include <cupola/data/prefetch.hpp>
#include <cupola/data/random_resized_crop.hpp>
#include <cupola/data/split.hpp>
#include <cupola/data/standardization.hpp>
#include <cupola/io/fingerprint.hpp>
#include <cupola/models/image_preprocessing.hpp>
#include <cupola/train/impl/batches_description.hpp>

#include "files_support.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

/// Images of different extents.
std::map<std::string, Bytes> photographs() {
    std::map<std::string, Bytes> files;
    for (int i = 0; i < 3; ++i) {
        files["train/cat/" + std::to_string(i) + ".jpg"] = jpeg(20 + 7 * i, 33 - 5 * i, 0, 0, 0, true);
        files["train/dog/" + std::to_string(i) + ".jpg"] = jpeg(40 - 9 * i, 21, 0, 0, 0, true);
    }
    files["test/cat/0.jpg"] = jpeg(30, 14, 250, 100, 10, true);
    files["test/dog/0.jpg"] = jpeg(12, 17, 10, 30, 250);
    return files;
}

const std::string names[] = {"train/cat/0.jpg", "train/cat/1.jpg", "train/cat/2.jpg",
                             "train/dog/0.jpg", "train/dog/1.jpg", "train/dog/2.jpg"};

constexpr RandomResizedCrop crop{.height = 9, .width = 8};

static_assert(SampleTransform<RandomResizedCrop, EncodedImageSet>);
static_assert(Transforms<Compose<RandomResizedCrop, Standardization>, EncodedImageSet>);
static_assert(Dataset<Subset<EncodedImageSet>> && HasSampleExtents<Subset<EncodedImageSet>>);
static_assert(!HasSampleExtents<ImageSet>);

}  // namespace

TEST_CASE("photographs of different extents are decoded and cropped for each batch, by any number of workers") {
    const TemporaryFolder folder;
    write_all(folder, "set", photographs());
    write_archive(folder.path("set.zip"), photographs(), Packing::zip);
    std::vector<Image> images;
    for (const std::string& name : names) images.push_back(read_image(folder.path("set/" + name)));
    for (const char* const path : {"set", "set.zip"}) {
        const EncodedImageData data = list_image_folder(folder.path(path));
        CHECK(data.format == (std::string(path) == "set" ? "ImageFolder" : "ImageFolder archive"));
        CHECK((data.train.size() == 6 && data.test.size() == 2 && data.train.class_count() == 2));
        CHECK(data.train.classes() == std::vector<std::string>{"cat", "dog"});
        CHECK(data.train.sample_shape() == Shape{20, 33, 3});
        for (std::int64_t i = 0; i < 6; ++i) {
            const DecodedImage image = data.train.sample(i);
            CHECK(image.shape() == images[static_cast<std::size_t>(i)].shape());
            CHECK(std::ranges::equal(image, images[static_cast<std::size_t>(i)].pixels));
            CHECK(data.train.label(i) == i / 3);
        }
        for (const int workers : {0, 2}) {
            const TrainingBatches<EncodedImageSet, RandomResizedCrop> order(data.train, crop,
                                                                            {.batch_size = 3, .seed = 5});
            Prefetch batches(TrainingBatches(data.train, crop, {.batch_size = 3, .seed = 5}), {.workers = workers});
            SerialContext context;
            for (std::int64_t step = 0; step < 4; ++step) {
                const BatchView view = batches(step, 0, context);
                const auto* const bytes = static_cast<const std::uint8_t*>(view.data(0));
                for (std::int64_t i = 0; i < 3; ++i) {
                    std::array<SampleOfEpoch, 1> place;
                    order.samples_at(step, 0, i, place);
                    const Image& image = images[place[0].index];
                    const RandomStream random(5, RngDomain::augmentation, place[0].epoch, place[0].index);
                    const Image expected = crop(image, crop.draw(image.height, image.width, random));
                    CHECK(std::ranges::equal(expected.pixels, std::span(bytes + i * 216, 216)));
                    CHECK(view.labels()[i] == place[0].index / 3);
                }
            }
        }
    }
}

TEST_CASE("with the option fit the samples are those of read_image_folder") {
    const TemporaryFolder folder;
    write_all(folder, "set", photographs());
    const ImageFolderOptions options{.channels = 1, .fit = ImageFit{.shorter_side = 12, .height = 10, .width = 11}};
    const ImageData decoded = read_image_folder(folder.path("set"), 1, options);
    const EncodedImageData listed = list_image_folder(folder.path("set"), options);
    CHECK(listed.train.sample_shape() == Shape{10, 11, 1});
    for (std::int64_t i = 0; i < 6; ++i) CHECK(std::ranges::equal(listed.train.sample(i), decoded.train.sample(i)));
    CHECK(Standardization::of(listed.train) == Standardization::of(decoded.train));
    CHECK(fingerprint(listed.train) == fingerprint(decoded.train));
    // Any transform takes images of one size.
    const TrainingBatches batches(listed.train, IdentityTransform{}, {.batch_size = 6, .seed = 5});
    const impl::BatchBuffer buffer(6, batches.columns());
    batches.fill(0, 0, buffer.span());
}

TEST_CASE("images that a transform does not make alike, and files that cannot be decoded, are errors of the batch") {
    const TemporaryFolder folder;
    std::map<std::string, Bytes> files = photographs();
    write_all(folder, "set", files);
    const EncodedImageData data = list_image_folder(folder.path("set"));
    const auto message = [](const auto& batches) {
        const impl::BatchBuffer buffer(6, batches.columns());
        return message_of<DataError>([&] { batches.fill(0, 0, buffer.span()); });
    };
    const std::string different = message(TrainingBatches(data.train, AsStored{}, {.batch_size = 6, .seed = 5}));
    CHECK(different.starts_with("sample "));
    CHECK(
        different.ends_with(", and the samples of a batch are 20 x 33 x 3: samples that differ in their extents need a "
                            "transform that makes them alike, as RandomResizedCrop"));
    CHECK(message(TrainingBatches(data.train, ImagePreprocessing{.fit = {.height = 20, .width = 33}},
                                  {.batch_size = 6, .seed = 5}))
              .find(" of the data set " + data.train.name() +
                    ": the network's images are 20 x 33 x 3, and what it is given is ") != std::string::npos);
    files["train/dog/1.jpg"].resize(200);
    write_all(folder, "set", files);
    CHECK(message(TrainingBatches(data.train, crop, {.batch_size = 6, .seed = 5})).find("train/dog/1.jpg") !=
          std::string::npos);
    CHECK(message_of<DataError>([&] { (void)list_image_folder(folder.path("none")); }) ==
          folder.path("none") + " does not exist");
    CHECK(message_of<InvalidArgument>([&] { (void)list_image_folder(folder.path("set"), {.channels = 2}); }) ==
          "images must have 1 channel (grey) or 3 (red, green, blue), not 2");
    const auto limited = list_image_folder(folder.path("set"), {.pixels_per_image = 700});
    CHECK(message_of<DataError>([&] {
              (void)limited.train.sample(3);
          }).ends_with("train/dog/0.jpg has 40 x 21 pixels; at most 700 are accepted"));
}

TEST_CASE("the first file with a fault that does not affect its pixels is named once") {
    const TemporaryFolder folder;
    std::map<std::string, Bytes> files = photographs();
    for (const char* const name : {"test/cat/0.jpg", "test/dog/0.jpg"})
        files[name] = with_bytes_before_end(files[name]);
    write_all(folder, "set", files);
    const EncodedImageData data = list_image_folder(folder.path("set"));
    const auto read_twice = [&] {
        for (int i = 0; i < 4; ++i) CHECK(data.test.sample(i % 2).size() > 0);
    };
    const std::string once = standard_error_of(read_twice);
    CHECK(once.starts_with("warning: " + folder.path("set") + ": test/cat/0.jpg has "));
    CHECK(std::ranges::count(once, '\n') == 1);
}

TEST_CASE("a run is compared by the names of the files, the channels and the fit") {
    const TemporaryFolder folder;
    write_all(folder, "set", photographs());
    write_archive(folder.path("set.tar"), photographs(), Packing::tar);
    const auto described = [&](const char* path, const ImageFolderOptions& options) {
        return list_image_folder(folder.path(path), options).train.description();
    };
    const std::string plain = described("set", {});
    CHECK(plain.starts_with("6 image files, names "));
    CHECK(plain.ends_with(", 3 channels"));
    CHECK(described("set.tar", {}) == plain);
    CHECK(described("set", {.fit = ImageFit{.shorter_side = 8, .height = 7, .width = 6}}) ==
          plain + ", fitted 8 7 x 6 bilinear");
    // The views of a part of it and with other targets have its text too.
    const EncodedImageSet set = list_image_folder(folder.path("set")).train;
    const auto described_part = [](const auto& data, const std::vector<std::uint32_t>& indices) {
        return impl::description_of_data(Subset(data, indices, "part"));
    };
    CHECK(described_part(set, {0, 2}).starts_with(plain + ", 2 of them, hash "));
    CHECK(described_part(set, {0, 2}) == described_part(set, {0, 2}));
    CHECK(described_part(set, {0, 2}) != described_part(set, {0, 3}));
    CHECK(described_part(set, {0, 2}) != described_part(set, {2, 0}));
    CHECK(impl::description_of_data(OneHotTargets(set)) == plain + ", one-hot targets");
    static_assert(!impl::Described<Subset<ImageSet>> && !impl::Described<OneHotTargets<ImageSet>>);
    folder.write("set/train/dog/3.jpg", jpeg(9, 9, 0, 0, 0));
    CHECK(described("set", {}) != plain);
}
