// SPDX-License-Identifier: Apache-2.0
//
// Reads CIFAR-10 in its own binary layout: data_batch_1.bin to data_batch_5.bin and test_batch.bin.
//
// A file is a row of records of 3,073 bytes without header: one label byte (0 to 9), then 1,024 red, 1,024 green and
// 1,024 blue bytes, each plane 32 x 32 row by row. In memory the channels come last. Source: Krizhevsky 2009,
// https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/impl/files.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

inline constexpr std::size_t cifar10_extent = 32;
inline constexpr std::size_t cifar10_plane = cifar10_extent * cifar10_extent;
inline constexpr std::size_t cifar10_record = 1 + 3 * cifar10_plane;
inline constexpr std::size_t cifar10_classes = 10;

/// Where the record files are: in `path` itself or in the folder that CIFAR-10's archive unpacks to; "" if in neither.
[[nodiscard]] inline std::string cifar10_folder(const std::string& path) {
    for (const char* below : {"", "/cifar-10-batches-bin"}) {
        std::string folder = path + below;
        for (const char* file : {"/data_batch_1.bin", "/test_batch.bin"}) {
            if (path_kind_of(folder + file) != PathKind::missing) return folder;
        }
    }
    return {};
}

/// Reads the records of `files`, one file after another. Allocates the sizes of the files.
[[nodiscard]] inline ImageSet read_cifar10_records(const std::string& name, const std::vector<std::string>& files) {
    std::size_t records = 0;
    for (const std::string& path : files) {
        const InputFile file(path);
        require<DataError>(file.size() > 0, path, " is empty");
        require<DataError>(file.size() % cifar10_record == 0, path,
                           " is truncated or is not a CIFAR-10 file: its size of ", file.size(),
                           " bytes is not a multiple of the record size of ", cifar10_record, " bytes");
        records += file.size() / cifar10_record;
    }
    std::vector<std::uint8_t> pixels(records * 3 * cifar10_plane);
    std::vector<std::int32_t> labels(records);
    std::size_t image = 0;
    for (const std::string& path : files) {
        InputFile file(path);
        const std::size_t end = image + file.size() / cifar10_record;
        require<DataError>(end <= records, path, " grew while it was read");
        for (std::size_t number = 0; image < end; ++image, ++number) {
            std::array<std::uint8_t, cifar10_record> record;
            file.read(record.data(), record.size());
            require<DataError>(record[0] < cifar10_classes, path, " has label ", static_cast<int>(record[0]),
                               " in record ", number, " (counted from 0); CIFAR-10's labels are 0 to ",
                               cifar10_classes - 1);
            labels[image] = record[0];
            std::uint8_t* to = pixels.data() + image * 3 * cifar10_plane;
            for (std::size_t i = 0; i < cifar10_plane; ++i) {
                for (std::size_t channel = 0; channel < 3; ++channel) {
                    to[3 * i + channel] = record[1 + channel * cifar10_plane + i];
                }
            }
        }
    }
    require<DataError>(image == records, name, " shrank while it was read");
    return {name,
            {cifar10_extent, cifar10_extent, 3},
            std::move(pixels),
            std::move(labels),
            {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
}

}  // namespace impl

/// The training and test images in the folder `path`, or in its folder cifar-10-batches-bin. Throws DataError.
[[nodiscard]] inline ImageData read_cifar10(const std::string& path) {
    require<DataError>(impl::path_kind_of(path) != impl::PathKind::missing, path, " does not exist");
    const std::string folder = impl::cifar10_folder(path);
    require<DataError>(!folder.empty(), path,
                       " contains neither data_batch_1.bin to data_batch_5.bin and test_batch.bin nor "
                       "a folder cifar-10-batches-bin with them");
    std::vector<std::string> training;
    for (int i = 1; i <= 5; ++i) training.push_back(text(folder, "/data_batch_", i, ".bin"));
    return {impl::read_cifar10_records(text(path, " (train)"), training),
            impl::read_cifar10_records(text(path, " (test)"), {folder + "/test_batch.bin"}), "CIFAR-10 binary files"};
}

}}  // namespace cupola::CUPOLA_ABI
