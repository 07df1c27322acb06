// SPDX-License-Identifier: Apache-2.0
//
// Reads MNIST's idx files: grey images as bytes, and their labels.
//
//   const ImageData digits = read_mnist("mnist");
//   const ImageSet letters = read_idx("letters-images-idx3-ubyte", "letters-labels-idx1-ubyte", {.classes = names});
//
// A file of images begins with the bytes 0 0 8 3, the number of images, their height and their width, one of labels
// with 0 0 8 1 and the number of labels; numbers have 32 bits, the highest byte first. Then one byte follows per pixel,
// row by row, or per label. Files that are packed must be unpacked first: `gzip -d`. Source: LeCun, Cortes, Burges,
// "The MNIST database of handwritten digits".
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/files.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct IdxOptions {
    /// The names of the classes, in the order of their labels.
    std::vector<std::string> classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
};

namespace impl {

/// The extents in the header of an idx file of bytes, and then its contents.
template <std::size_t rank>
struct IdxFile {
    explicit IdxFile(const std::string& path, std::string_view what) : file(path), name(path) {
        std::array<std::uint8_t, 4> word{};
        const auto read_word = [&] {
            file.read(word.data(), word.size());
            return std::uint32_t{word[0]} << 24 | std::uint32_t{word[1]} << 16 | std::uint32_t{word[2]} << 8 | word[3];
        };
        constexpr std::size_t header = 4 * (1 + rank);
        require<DataError>(file.size() > 0, path, " is empty");
        require<DataError>(file.size() >= 4, path, " is truncated: its size is ", file.size(), " bytes");
        const std::uint32_t magic = read_word();
        require<DataError>(magic >> 16 != 0x1F8B, path, " is packed by gzip; unpack it first (gzip -d)");
        require<DataError>(magic == 0x0800 + rank, path, " is not an idx file of ", what, ": it begins with the bytes ",
                           magic >> 24, ' ', magic >> 16 & 0xFF, ' ', magic >> 8 & 0xFF, ' ', magic & 0xFF,
                           ", not with 0 0 8 ", rank);
        require<DataError>(file.size() >= header, path, " is truncated: its size is ", file.size(),
                           " bytes, and its header has ", header);
        const std::uint64_t room = file.size() - header;
        for (std::uint32_t& extent : extents) extent = read_word();
        // The product is computed only as far as the file could contain it.
        std::uint64_t count = std::ranges::count(extents, 0U) == 0 ? 1 : 0;
        bool fits = true;
        for (const std::uint32_t extent : extents) {
            fits = fits && (count == 0 || count <= room / extent);
            count = fits ? count * extent : count;
        }
        require<DataError>(fits, path, " is truncated: its size is ", file.size(), " bytes, too few for ", what, " of ",
                           described());
        require<DataError>(count == room, path, " has ", room - count, " bytes behind its ", what, " of ", described());
    }

    [[nodiscard]] std::string described() const {
        std::string result;
        for (const std::uint32_t extent : extents) result += text(result.empty() ? "" : " x ", extent);
        return result;
    }
    [[nodiscard]] std::vector<std::uint8_t> contents() {
        std::size_t count = 1;
        for (const std::uint32_t extent : extents) count *= extent;
        std::vector<std::uint8_t> bytes(count);
        file.read(bytes.data(), count);
        return bytes;
    }

    InputFile file;
    std::string name;
    std::array<std::uint32_t, rank> extents{};
};

/// "train-images-idx3-ubyte", or with a point before "idx3", as some archives unpack it.
[[nodiscard]] inline std::string mnist_file(const std::string& folder, std::string_view part, std::string_view kind) {
    std::string name = text(folder, '/', part, '-', kind, "-ubyte");
    if (path_kind_of(name) != PathKind::missing) return name;
    std::string other = text(folder, '/', part, '.', kind, "-ubyte");
    if (path_kind_of(other) != PathKind::missing) return other;
    require<DataError>(path_kind_of(name + ".gz") == PathKind::missing, name,
                       ".gz is packed by gzip; unpack it first (gzip -d)");
    throw DataError(text(name, " does not exist"));
}

}  // namespace impl

/// Reads the images of one file and the labels of the other as grey images. Throws DataError with the file and the
/// numbers for files that are not idx files of these kinds, are truncated or too long, have different numbers of images
/// and labels, or a label without a class.
[[nodiscard]] inline ImageSet read_idx(const std::string& images, const std::string& labels,
                                       const IdxOptions& options = {}) {
    impl::IdxFile<3> image_file(images, "images");
    impl::IdxFile<1> label_file(labels, "labels");
    const auto [count, height, width] = image_file.extents;
    require<DataError>(label_file.extents[0] == count, images, " has ", count, " images, and ", labels, " has ",
                       label_file.extents[0], " labels");
    require<DataError>(count > 0, images, " has no images");
    const std::vector<std::uint8_t> numbers = label_file.contents();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        require<DataError>(numbers[i] < options.classes.size(), labels, " has label ", static_cast<int>(numbers[i]),
                           " at image ", i, " (counted from 0); with ", options.classes.size(),
                           " classes labels are 0 to ", static_cast<std::int64_t>(options.classes.size()) - 1);
    }
    return {images,
            {static_cast<std::int64_t>(height), static_cast<std::int64_t>(width), 1},
            image_file.contents(),
            {numbers.begin(), numbers.end()},
            options.classes};
}

/// Reads MNIST's four files, or those of a data set with the same names (Fashion-MNIST, KMNIST), from a folder:
/// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte. Throws
/// DataError as read_idx does, for a file that is not there, and for test images of other extents.
[[nodiscard]] inline ImageData read_mnist(const std::string& folder, const IdxOptions& options = {}) {
    require<DataError>(impl::path_kind_of(folder) != impl::PathKind::missing, folder, " does not exist");
    const auto split = [&](std::string_view part) {
        const std::string images = impl::mnist_file(folder, text(part, "-images"), "idx3");
        return read_idx(images, impl::mnist_file(folder, text(part, "-labels"), "idx1"), options);
    };
    ImageData result{split("train"), split("t10k"), "idx files"};
    require<DataError>(result.train.sample_shape() == result.test.sample_shape(), result.test.name(), " has images of ",
                       to_string(result.test.sample_shape()), ", and ", result.train.name(), " has images of ",
                       to_string(result.train.sample_shape()));
    return result;
}

}}  // namespace cupola::CUPOLA_ABI
