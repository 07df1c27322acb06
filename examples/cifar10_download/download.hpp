// SPDX-License-Identifier: Apache-2.0
//
// Downloads CIFAR-10's binary files from their author's site, complete and checked, or fails. Other programs compile
// these .cpp files together with their own and call ensure_cifar10(folder).
#pragma once

#include <string>

namespace cifar10 {

struct DownloadOptions {
    std::string url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
    /// The archive's checksum in hexadecimal; not checked if empty. The default is that of the author's file of
    /// 170,052,171 bytes, whose page gives the MD5 c32a1d4ab5d03f1284b67883e8d87530.
    std::string sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";
    std::string md5{};
    /// Whether to print progress messages on standard output, in a terminal with the percentage of the download.
    bool verbose = true;
    /// Whether to wait for another process that downloads to the same folder, and to use what it has downloaded;
    /// otherwise that is an error. For the processes of one training.
    bool waits = false;
    /// Prints each message as {"message": "..."}, and no percentage.
    bool json = false;
};

/// Ensures that <data_dir>/cifar-10-batches-bin contains CIFAR-10's binary files, and returns that folder's path.
/// Existing files are checked and kept; otherwise the archive is downloaded, continuing an interrupted download, its
/// checksum is compared, and it is unpacked into a temporary folder, checked and renamed. Throws cupola::DataError; the
/// downloaded part is then kept if the next download can continue it, and removed otherwise.
std::string ensure_cifar10(const std::string& data_dir, const DownloadOptions& options = {});

}  // namespace cifar10
