// SPDX-License-Identifier: Apache-2.0
//
// Unpacks an archive of one folder of plain files, by libarchive.
#pragma once

#include <string>

namespace cifar10 {

/// Writes the files of the archive's folder `folder` into the new folder `to`, each synced. Throws cupola::DataError,
/// and leaves no `to`, for an archive that is damaged, holds anything but plain files in that one folder, or is larger
/// than the data can be; and where a file cannot be written.
void unpack(const std::string& archive, const std::string& folder, const std::string& to);

/// Removes a folder with what is in it; no error where there is none.
void remove_folder(const std::string& path);

}  // namespace cifar10
