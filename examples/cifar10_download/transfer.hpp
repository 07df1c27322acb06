// SPDX-License-Identifier: Apache-2.0
//
// A file from a URL, by libcurl, going on where an earlier transfer broke off.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace cifar10 {

/// Told the bytes that are there, and those of the whole, 0 while that is not known.
using TransferProgress = std::function<void(std::uint64_t there, std::uint64_t whole)>;

/// Appends to the open file `handle`, called `path` in errors, what it lacks of the file at `url` (http, https or
/// file). A connection that breaks is made again, as long as bytes come. A server that cannot go on in the middle sends
/// all again. Throws cupola::DataError with one sentence; what has come is kept where the next transfer can go on from it,
/// and the file is emptied otherwise.
void transfer(const std::string& url, const std::string& path, int handle, const TransferProgress& progress);

}  // namespace cifar10
