// SPDX-License-Identifier: Apache-2.0
//
// Downloads a file from a URL by libcurl, and continues an interrupted transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace cifar10 {

/// Called with the number of bytes received so far, and the total, which is 0 while it is not known.
using TransferProgress = std::function<void(std::uint64_t there, std::uint64_t whole)>;

/// Appends to the open file `handle`, called `path` in errors, the missing part of the file at `url` (http, https or
/// file). A broken connection is restored as long as bytes arrive. A server that does not support ranges sends the
/// whole file again. Throws cupola::DataError; the received bytes are kept if the next transfer can continue from them,
/// and the file is emptied otherwise.
void transfer(const std::string& url, const std::string& path, int handle, const TransferProgress& progress);

}  // namespace cifar10
