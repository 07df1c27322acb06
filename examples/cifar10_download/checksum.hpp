// SPDX-License-Identifier: Apache-2.0
//
// The checksums of files, by OpenSSL.
#pragma once

#include <string>

namespace cifar10 {

/// The checksum in hexadecimal; `algorithm` is SHA-256 or MD5. Throws cupola::DataError if the file cannot be read.
std::string checksum_of(const std::string& path, const std::string& algorithm);

}  // namespace cifar10
