// SPDX-License-Identifier: Apache-2.0
//
// Unpacks an archive of one folder of plain files, by libarchive.
#pragma once

#include <string>

#include <cupola/core/error.hpp>

namespace cifar10 {

/// Thrown for an archive that is damaged, contains anything but plain files in its one folder, or is too large.
class BadArchive : public cupola::DataError {
public:
    using DataError::DataError;
};

/// Writes the files of the archive's folder `folder` into the new folder `to`, each synced. Throws BadArchive, or
/// cupola::DataError if a file cannot be written, and removes `to` then.
void unpack(const std::string& archive, const std::string& folder, const std::string& to);

/// Removes a folder and its contents; no error if it does not exist.
void remove_folder(const std::string& path);

}  // namespace cifar10
