// SPDX-License-Identifier: Apache-2.0
//
// Reads a data set in torchvision's ImageFolder layout, `train/<class>/cat.jpg` and `test/<class>/dog.jpg`, from a
// folder or from an archive of one (tar.xz, tar.gz, tar, zip). The formats are those of
// data/impl/images/image_formats.hpp. Images without `test/`, in `train/<class>/` or `<class>/` itself, are split by an
// option:
//
//   const ImageData pets = read_image_folder("pets", 4, {.split = {.validation = 0.2, .seed = 1, .stratified = true}});
//
// Classes are numbered in the order of their names and images are in the order of their names, so a folder and an
// archive of it are the same data set. All images have one size, upright according to their EXIF data; photographs of
// different sizes get one by the option `fit`. Every image is decoded once, by a fixed number of threads, and the
// result does not depend on that number. Needs libarchive, libjpeg-turbo and libpng (CMake: cupola::data).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/thread.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/images/archive_list.hpp>
#include <cupola/data/impl/images/folder_list.hpp>
#include <cupola/data/impl/images/image_formats.hpp>
#include <cupola/device/processors.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The files at `path`, a folder or an archive. Throws DataError for one that is no data set of images, and
/// InvalidArgument for options that are out of range.
[[nodiscard]] inline ImageList list_images(const std::string& path, const ImageFolderOptions& options) {
    require(options.channels == 1 || options.channels == 3,
            "images must have 1 channel (grey) or 3 (red, green, blue), not ", options.channels);
    if (options.fit) {
        const ImageFit& fit = *options.fit;
        require_extents(fit.height, fit.width);
        require(fit.height <= fit.shorter_side && fit.width <= fit.shorter_side, "images with a shorter side of ",
                fit.shorter_side, " pixels have no part of ", fit.height, " x ", fit.width);
    }
    const PathKind kind = path_kind_of(path);
    require<DataError>(kind != PathKind::missing, path, " does not exist");
    ImageList list = kind == PathKind::folder ? list_folder(path, options) : list_archive(path, options);
    sort_and_check(list, options.split);
    return list;
}

[[nodiscard]] inline const char* format_name_of(const ImageList& list) {
    return list.from_archive ? "ImageFolder archive" : "ImageFolder";
}

/// The number of the class of a file.
[[nodiscard]] inline std::int32_t label_of(const ImageList::Split& split, const ImageFile& file) {
    const auto at = std::lower_bound(split.classes.begin(), split.classes.end(), file.class_name);
    return static_cast<std::int32_t>(at - split.classes.begin());
}

/// The stored bytes of one file; `buffer` holds them where they come from a folder.
[[nodiscard]] inline std::span<const std::uint8_t> bytes_of(const ImageList& list, std::size_t split,
                                                            const ImageFile& file, const ImageFolderOptions& options,
                                                            std::vector<std::uint8_t>& buffer) {
    if (list.from_archive) return {list.bytes.data() + file.offset, file.size};
    InputFile input(text(list.prefix, list.name_of(split, file.class_name), '/', file.name));
    require<DataError>(input.size() <= options.bytes_per_file, list.name_of(split, file), " is larger than ",
                       options.bytes_per_file, " bytes");
    buffer.resize(input.size());
    input.read(buffer.data(), buffer.size());
    return buffer;
}

/// Calls f(i) for i in [0, count) on `workers` threads, each with its own range of i in order. Throws the exception of
/// the lowest i that failed, for any number of threads; Error at once if a thread cannot be started.
template <class Function>
void decode_in_parallel(std::size_t count, int workers, Function f) {
    const std::size_t parts = std::min(count, static_cast<std::size_t>(workers));
    std::vector<std::exception_ptr> errors(parts);
    std::atomic<bool> stopping = false;
    const auto work = [&](std::size_t part) {
        if (part > 0) leave_place();
        try {
            std::vector<std::uint8_t> buffer;
            for (std::size_t i = count * part / parts; i < count * (part + 1) / parts && !stopping; ++i) f(i, buffer);
        } catch (...) {
            errors[part] = std::current_exception();
        }
    };
    {
        std::vector<Thread> threads;
        try {
            for (std::size_t part = 1; part < parts; ++part) {
                const ThreadPurpose purpose{"the decoding of images", static_cast<int>(part - 1),
                                            static_cast<int>(parts - 1)};
                threads.emplace_back(purpose, [&work, part] { work(part); });
            }
        } catch (...) {
            stopping = true;  // those that run are joined, so they must end soon
            throw;
        }
        work(0);
    }
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

/// The images whose files have flaws: the number of them, and the first.
struct Flaws {
    std::size_t count = 0;
    std::string first{};
    const char* flaw = nullptr;
};

inline void require_few_pixels(const std::string& name, const ImageSize& size, const ImageFolderOptions& options) {
    require<DataError>(size.height * size.width <= options.pixels_per_image, name, " has ", size.height, " x ",
                       size.width, " pixels; at most ", options.pixels_per_image, " are accepted");
}

/// An image of any size, which `options.fit` makes one of its extents.
template <class Value>
ImageInfo decode_fitted(const std::string& name, std::span<const std::uint8_t> bytes, const ImageFolderOptions& options,
                        Value* to) {
    const ImageSize size = format_of(name, bytes).info(name, bytes).size;
    require_few_pixels(name, size, options);
    const auto [shorter, longer] = std::minmax(size.height, size.width);
    require<DataError>(longer * options.fit->shorter_side / shorter <= max_extent, name, " is ", size.height, " x ",
                       size.width, " pixels, too long for a shorter side of ", options.fit->shorter_side);
    BasicImage<Value> image{size.height, size.width, options.channels, {}};
    image.pixels.resize(static_cast<std::size_t>(image.shape().size()));
    const ImageInfo info = decode_image(name, bytes, size, options.channels, image.pixels.data());
    std::ranges::copy((*options.fit)(image).pixels, to);
    return info;
}

/// `like` has the properties of the first file of all.
template <class Value>
[[nodiscard]] BasicImageSet<Value> decode_split(const ImageList& list, std::size_t s, const ImageInfo& like,
                                                int workers, const ImageFolderOptions& options, Flaws& flaws) {
    const ImageList::Split& split = list.splits[s];
    const ImageSize size = options.fit ? ImageSize{options.fit->height, options.fit->width} : like.size;
    const std::size_t image_values = static_cast<std::size_t>(size.height * size.width * options.channels);
    require<DataError>(split.files.size() <= options.total_bytes / sizeof(Value) / image_values, list.path,
                       " decodes to more than ", options.total_bytes, " bytes: ", split.files.size(), " images of ",
                       size.height, " x ", size.width);
    std::vector<Value> pixels(split.files.size() * image_values);
    std::vector<std::int32_t> labels(split.files.size());
    std::vector<const char*> flaw_of(split.files.size());
    decode_in_parallel(split.files.size(), workers, [&](std::size_t i, std::vector<std::uint8_t>& buffer) {
        const ImageFile& file = split.files[i];
        const std::string name = list.name_of(s, file);
        const std::span<const std::uint8_t> bytes = bytes_of(list, s, file, options, buffer);
        Value* const to = pixels.data() + i * image_values;
        const ImageInfo own = options.fit ? decode_fitted(name, bytes, options, to)
                                          : decode_image(name, bytes, size, options.channels, to);
        require<DataError>(options.fit || own.size == size, name, " is ", own.size.height, " x ", own.size.width,
                           " pixels, and ", list.name_of(0, list.splits[0].files[0]), " is ", size.height, " x ",
                           size.width,
                           ": all images of a data set must have the same size; the option fit makes them so");
        require<DataError>(own.wide == like.wide, name, " has ", own.wide ? 16 : 8, " bits per sample, and ",
                           list.name_of(0, list.splits[0].files[0]), " has ", like.wide ? 16 : 8,
                           ": all images of a data set must have the same range of values");
        flaw_of[i] = own.flaw;
        labels[i] = label_of(split, file);
    });
    for (std::size_t i = 0; i < flaw_of.size(); ++i) {
        if (flaw_of[i] == nullptr || flaws.count++ > 0) continue;
        flaws.first = list.name_of(s, split.files[i]);
        flaws.flaw = flaw_of[i];
    }
    return {text(list.path, " (", split_names[s], ')'),
            {size.height, size.width, options.channels},
            std::move(pixels),
            std::move(labels),
            split.classes};
}

}  // namespace impl

/// The training and test images at `path`, a folder or an archive, decoded by `workers` threads.
/// `read_image_folder<float>` reads images of 16 bits per sample too, whose values are 0 to 65535; nothing is scaled.
/// Throws DataError, also where an image has 16 bits and bytes were requested, or where some have 16 bits and others
/// fewer; InvalidArgument for options that are out of range.
///
/// A JPEG whose file has bytes before its end marker, another version of JFIF or an unknown transform of Adobe is read
/// as by other programs; one line on standard error says how many there are, and names the first.
template <class Value = std::uint8_t>
[[nodiscard]] BasicImageData<Value> read_image_folder(const std::string& path, int workers = 1,
                                                      const ImageFolderOptions& options = {}) {
    static_assert(std::is_same_v<Value, std::uint8_t> || std::is_same_v<Value, float>,
                  "images have bytes (std::uint8_t) or floats");
    require(workers >= 1 && workers <= 1024, "the number of decoding threads must be 1 to 1024, not ", workers);
    const impl::ImageList list = impl::list_images(path, options);
    const impl::ImageFile& first = list.splits[0].files[0];
    std::vector<std::uint8_t> buffer;
    const std::string name = list.name_of(0, first);
    const std::span<const std::uint8_t> bytes = impl::bytes_of(list, 0, first, options, buffer);
    const impl::ImageInfo like = impl::format_of(name, bytes).info(name, bytes);
    impl::require_few_pixels(name, like.size, options);
    impl::Flaws flaws;
    auto train = impl::decode_split<Value>(list, 0, like, workers, options, flaws);
    auto test = impl::decode_split<Value>(list, 1, like, workers, options, flaws);
    impl::warn_of_flaws(flaws.count, flaws.first, flaws.flaw);
    return {std::move(train), std::move(test), impl::format_name_of(list)};
}

}}  // namespace cupola::CUPOLA_ABI
