// SPDX-License-Identifier: Apache-2.0
//
// A folder for the files of a test.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

#include "standard.hpp"

/// A new folder, which others can read. It is deleted, with what is in it, at the end.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "cupola_test_XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name + " can be made");
        path_ = name;
        std::filesystem::permissions(path_, std::filesystem::perms(0755));
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] std::string path(const std::string& below = "") const {
        return below.empty() ? path_ : path_ + '/' + below;
    }
    /// The names of what is in it.
    [[nodiscard]] std::set<std::string> names() const {
        std::set<std::string> result;
        for (const auto& entry : std::filesystem::directory_iterator(path_)) result.insert(entry.path().filename());
        return result;
    }
    /// Writes a file of bytes, with the folders above it. Its path.
    template <class Bytes = std::vector<std::uint8_t>>
    std::string write(const std::string& below, const Bytes& bytes) const {
        const std::filesystem::path file = path(below);
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary)
            .write(reinterpret_cast<const char*>(std::data(bytes)), static_cast<std::streamsize>(std::size(bytes)));
        return file.string();
    }

private:
    std::string path_;
};
