// SPDX-License-Identifier: Apache-2.0
//
// Opens an image data set by its path alone: CIFAR-10's binary files, MNIST's idx files, or an ImageFolder, a folder or
// an archive.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <cupola/data/cifar10.hpp>
#include <cupola/data/dataset.hpp>
#include <cupola/data/idx.hpp>
#include <cupola/data/image_folder.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The data set at `path`; `workers` threads decode. Throws DataError if `path` holds none of them, with what was
/// expected.
[[nodiscard]] inline ImageData open_image_data(const std::string& path, int workers = 1) {
    const impl::PathKind kind = impl::path_kind_of(path);
    require<DataError>(kind != impl::PathKind::missing, path, " does not exist");
    if (kind == impl::PathKind::folder) {
        const std::vector<std::string> names = impl::names_in(path);  // first: the folder may exist and not be readable
        if (!impl::cifar10_folder(path).empty()) return read_cifar10(path);
        const bool mnist = std::ranges::any_of(names, [](const std::string& name) {
            return name.starts_with("train-images") && name.find("idx3-ubyte") != std::string::npos;
        });
        if (mnist) return read_mnist(path);
        const bool image_folder = std::binary_search(names.begin(), names.end(), "train") ||
                                  std::binary_search(names.begin(), names.end(), "test");
        require<DataError>(image_folder, path,
                           " is not a data set: expected CIFAR-10's data_batch_1.bin to data_batch_5.bin "
                           "and test_batch.bin, MNIST's train-images-idx3-ubyte and its other three files, "
                           "or the folders train/<class>/ and test/<class>/ of JPEG or PNG images; without test/, "
                           "read_image_folder splits them by its option .split");
    }
    return read_image_folder(path, workers);
}

}}  // namespace cupola::CUPOLA_ABI
