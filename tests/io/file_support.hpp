// SPDX-License-Identifier: Apache-2.0
//
// Files for the tests of checkpoints: a folder that is deleted at the end, files as strings of bytes, a second process,
// and the peak number of bytes that a piece of code has allocated.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <cupola/io/impl/whole_file.hpp>

#include "../child_process.hpp"
#include "../sanitized.hpp"
#include "../standard.hpp"
#include "../temporary_folder.hpp"

namespace io_tests {

using ::TemporaryFolder;

inline std::string read_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

/// Bytes as a file in memory.
inline cupola::impl::FileBytes in_memory(const std::string& bytes) {
    cupola::impl::FileBytes file{std::make_unique<std::byte[]>(bytes.size()), bytes.size()};
    std::memcpy(file.bytes.get(), bytes.data(), bytes.size());
    return file;
}

/// A safetensors file of this header and data.
inline std::string safetensors(const std::string& header, const std::string& data = "") {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

using ::in_child;

/// The most bytes that operator new had given out at one time while `f` ran, beside those before it.
std::size_t peak_bytes(const std::function<void()>& f);

}  // namespace io_tests
