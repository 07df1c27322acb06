// SPDX-License-Identifier: Apache-2.0
//
// Unpacks an archive of one folder of plain files, by libarchive.
#pragma once

#include <string>

#include <cupola/core/error.hpp>

namespace cifar10 {

/// An archive that is damaged, holds anything but plain files in its one folder, or is larger than the data can be.
class BadArchive : public cupola::DataError {
public:
    using DataError::DataError;
};

/// Writes the files of the archive's folder `folder` into the new folder `to`, each synced. Throws BadArchive, or
/// cupola::DataError where a file cannot be written, and leaves no `to` then.
void unpack(const std::string& archive, const std::string& folder, const std::string& to);

/// Removes a folder with what is in it; no error where there is none.
void remove_folder(const std::string& path);

}  // namespace cifar10
