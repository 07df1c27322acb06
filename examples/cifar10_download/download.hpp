// SPDX-License-Identifier: Apache-2.0
//
// CIFAR-10's binary files from their author's site, whole and checked, or not at all. Other programs compile these .cpp
// files beside their own and call ensure_cifar10(folder).
#pragma once

#include <string>

namespace cifar10 {

struct DownloadOptions {
    std::string url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
    /// Of the archive, hexadecimal; one that is empty is not checked. This is that of the author's file of 170,052,171
    /// bytes, whose page gives the MD5 c32a1d4ab5d03f1284b67883e8d87530.
    std::string sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";
    std::string md5{};
    /// Lines on standard output about what is done, with the share of the download in a terminal.
    bool talks = true;
    /// Each line {"message": "..."}, and no share.
    bool json = false;
};

/// Sees to it that <data_dir>/cifar-10-batches-bin holds CIFAR-10's binary files, and returns that folder's path. What
/// is there is checked and left; else the archive is downloaded, going on where an earlier download broke off, its
/// checksum compared, unpacked into a folder beside, checked and renamed. Throws cupola::DataError with one sentence; what
/// was downloaded is kept then if the next download can go on from it, and removed otherwise.
std::string ensure_cifar10(const std::string& data_dir, const DownloadOptions& options = {});

}  // namespace cifar10
