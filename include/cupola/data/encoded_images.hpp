// SPDX-License-Identifier: Apache-2.0
//
// Photographs of different extents, in torchvision's ImageFolder layout, as a data set of their files: an image is
// decoded when a batch needs it, by the threads that make batches, and a transform makes it one of the batch's extents.
// No decoded image is kept; the files of an archive are in memory, those of a folder are not.
//
//   const EncodedImageData pets = list_image_folder("pets");
//   const Compose augmented{RandomResizedCrop{}, ResNet50<>::preprocessing};
//   Prefetch batches(TrainingBatches(pets.train, augmented, {.batch_size = 32, .seed = 1}), {.workers = 4});
//
// Layout, formats, order, classes and options are those of read_image_folder (data/image_folder.hpp), which decodes
// every image once: that is faster where all fit into memory and need no transform of their own extents. With the
// option `fit` an image is fitted each time, so that all have one size.
//
// A file that cannot be decoded is found when a batch needs it: a DataError that names it. Needs libarchive,
// libjpeg-turbo and libpng (CMake: cupola::data), which allocate memory for each image.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/hash_word.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/image_folder.hpp>
#include <cupola/data/impl/scratch.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// A sample: the bytes of an image, height x width x channels, and their extents.
class DecodedImage : public std::span<const std::uint8_t> {
public:
    /// Calls decode(to), which writes all bytes.
    template <class Decode>
    DecodedImage(const Shape& shape, const Decode& decode)
        : shape_(shape), memory_(static_cast<std::size_t>(shape.size())) {
        decode(memory_.data());
        static_cast<std::span<const std::uint8_t>&>(*this) = {memory_.data(), memory_.size()};
    }

    [[nodiscard]] const Shape& shape() const { return shape_; }

private:
    Shape shape_;
    impl::Scratch<std::uint8_t> memory_;
};

/// The labelled image files of one split: a data set whose samples have extents of their own. Any number of threads may
/// read samples at once.
class EncodedImageSet {
public:
    /// list_image_folder() makes it. Throws DataError if the first image's file cannot be read.
    [[gnu::cold]] EncodedImageSet(std::shared_ptr<const impl::ImageList> list, std::size_t split,
                                  const ImageFolderOptions& options)
        : list_(std::move(list)),
          split_(split),
          options_(options),
          name_(text(list_->path, " (", impl::split_names[split], ')')) {
        for (const impl::ImageFile& file : files()) labels_.push_back(impl::label_of(list_->splits[split_], file));
        std::vector<std::uint8_t> buffer;
        const std::string first = list_->name_of(split_, files()[0]);
        shape_ = shape_of(first, impl::bytes_of(*list_, split_, files()[0], options_, buffer));
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
    /// The extents of the first image.
    [[nodiscard]] const Shape& sample_shape() const { return shape_; }
    /// Reads and decodes an image. Throws DataError that names its file.
    [[nodiscard]] DecodedImage sample(std::int64_t i) const {
        const impl::ImageFile& file = files()[static_cast<std::size_t>(i)];
        const std::string name = list_->name_of(split_, file);
        std::vector<std::uint8_t> buffer;
        const std::span<const std::uint8_t> bytes = impl::bytes_of(*list_, split_, file, options_, buffer);
        const Shape shape = shape_of(name, bytes);
        return {shape, [&](std::uint8_t* to) {
                    const impl::ImageInfo info =
                        options_.fit
                            ? impl::decode_fitted(name, bytes, options_, to)
                            : impl::decode_image(name, bytes, {shape.height(), shape.width()}, options_.channels, to);
                    if (info.flaw != nullptr && !has_warned_->exchange(true)) impl::warn_of_flaws(1, name, info.flaw);
                }};
    }
    [[nodiscard]] std::int32_t label(std::int64_t i) const { return labels_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] std::int64_t class_count() const { return static_cast<std::int64_t>(classes().size()); }
    [[nodiscard]] const std::vector<std::string>& classes() const { return list_->splits[split_].classes; }

    /// The text by which the data of two runs are compared: the names of the files and what is made of them. The files
    /// themselves are not read.
    [[nodiscard, gnu::cold]] std::string description() const {
        impl::SequenceHash hash;
        const auto add = [&hash](std::string_view of) {
            hash.add(std::uint64_t{of.size()});
            for (const char c : of) hash.add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
        };
        for (const impl::ImageFile& file : files()) {
            add(file.class_name);
            add(file.name);
        }
        std::string fit;
        if (options_.fit) {
            fit = text(", fitted ", options_.fit->shorter_side, ' ', options_.fit->height, " x ", options_.fit->width,
                       ' ', to_string(options_.fit->filter));
        }
        return text(size(), " image files, names ", hash.text(), ", ", options_.channels,
                    options_.channels == 1 ? " channel" : " channels", fit);
    }

private:
    [[nodiscard]] const std::vector<impl::ImageFile>& files() const { return list_->splits[split_].files; }

    [[nodiscard]] Shape shape_of(const std::string& name, std::span<const std::uint8_t> bytes) const {
        const impl::ImageSize size = impl::format_of(name, bytes).info(name, bytes).size;
        impl::require_few_pixels(name, size, options_);
        if (options_.fit) return {options_.fit->height, options_.fit->width, options_.channels};
        return {size.height, size.width, options_.channels};
    }

    std::shared_ptr<const impl::ImageList> list_;
    std::size_t split_;
    ImageFolderOptions options_;
    std::string name_;
    std::vector<std::int32_t> labels_;
    Shape shape_;
    std::shared_ptr<std::atomic<bool>> has_warned_ = std::make_shared<std::atomic<bool>>(false);
};

static_assert(Dataset<EncodedImageSet> && HasSampleExtents<EncodedImageSet>);

/// The two splits of an image data set; `format` is what was listed: "ImageFolder".
struct EncodedImageData {
    EncodedImageSet train;
    EncodedImageSet test;
    std::string format;
};

/// The training and test images at `path`, a folder or an archive, none of which is decoded. Throws as
/// read_image_folder() for what the names of the files and the options say. A JPEG with a fault that does not affect
/// its pixels is read; one line on standard error names one of each split.
[[nodiscard]] inline EncodedImageData list_image_folder(const std::string& path,
                                                        const ImageFolderOptions& options = {}) {
    const auto list = std::make_shared<const impl::ImageList>(impl::list_images(path, options));
    return {EncodedImageSet(list, 0, options), EncodedImageSet(list, 1, options), impl::format_name_of(*list)};
}

}}  // namespace cupola::CUPOLA_ABI
