// SPDX-License-Identifier: Apache-2.0
//
// A file that is read in pieces, as needed: of a file of several gigabytes no more is in memory than a piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/whole_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The number at `at`, least significant byte first.
template <class Number>
[[nodiscard]] Number little_endian(const std::byte* at) {
    static_assert(std::is_integral_v<Number>);
    std::uint64_t number = 0;
    for (std::size_t i = sizeof(Number); i > 0; --i) number = number << 8 | std::to_integer<std::uint64_t>(at[i - 1]);
    return static_cast<Number>(number);
}

class FilePieces {
public:
    explicit FilePieces(std::string path) : path_(std::move(path)) {
        file_.emplace(path_);
        size_ = file_->size();
    }
    /// Bytes in memory; `path` is for messages.
    FilePieces(std::string path, FileBytes bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {
        size_ = bytes_.size;
    }

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::uint64_t size() const { return size_; }
    /// The bytes of a file in memory, which may be changed; null for one that is read.
    [[nodiscard]] std::byte* in_memory() const { return bytes_.bytes.get(); }

    /// Throws DataError where the file ends before.
    void read(std::uint64_t offset, std::span<std::byte> to) const {
        require_bytes(offset, to.size());
        if (to.empty()) return;
        if (file_) return file_->read(path_, offset, to);
        std::memcpy(to.data(), bytes_.bytes.get() + offset, to.size());
    }
    [[nodiscard]] std::vector<std::byte> read(std::uint64_t offset, std::uint64_t count) const {
        require_bytes(offset, count);
        std::vector<std::byte> bytes(count);
        read(offset, bytes);
        return bytes;
    }
    void require_bytes(std::uint64_t offset, std::uint64_t count) const {
        const std::uint64_t left = offset < size_ ? size_ - offset : 0;
        require<DataError>(count <= left, path_, " is truncated: it has ", size_, " bytes, and ", count, " from byte ",
                           offset, " on belong to it");
    }

private:
    std::string path_;
    std::optional<RegularFile> file_;
    FileBytes bytes_;
    std::uint64_t size_ = 0;
};

/// The first characters of a file, at most 512.
[[nodiscard]] inline std::string first_characters(const FilePieces& file) {
    std::string characters(std::min<std::size_t>(file.size(), 512), '\0');
    file.read(0, std::as_writable_bytes(std::span(characters)));
    return characters;
}

/// Whether a file with these first bytes begins as a safetensors file of any length: with the length of its header, at
/// most 4 GB, and the header's brace. Lengths such as 640 begin with the two bytes of a pickle, so that this is asked
/// before other formats are.
[[nodiscard]] inline bool begins_safetensors(std::string_view bytes) {
    using namespace std::string_view_literals;
    return bytes.size() > 8 && bytes[8] == '{' && bytes.substr(4, 4) == "\0\0\0\0"sv;
}

/// Bytes from `begin` to `end` of a file, read from the front as far as they are asked for.
class FileFront {
public:
    FileFront(const FilePieces& file, std::uint64_t begin, std::uint64_t end)
        : file_(file), begin_(begin), length_(end - begin) {
        file.require_bytes(begin, length_);
    }
    /// The next `count` bytes, valid until the next call; null where the end comes before.
    [[nodiscard]] const std::byte* take(std::uint64_t count) {
        if (count > length_ - at_) return nullptr;
        if (at_ + count > bytes_.size()) {
            constexpr std::size_t least = 16384;
            std::size_t wanted = bytes_.size() * 2 > least ? bytes_.size() * 2 : least;
            if (wanted < at_ + count) wanted = at_ + count;
            if (wanted > length_) wanted = length_;
            const std::size_t old = bytes_.size();
            bytes_.reserve(wanted);
            bytes_.resize(wanted);
            file_.read(begin_ + old, std::span(bytes_).subspan(old));
        }
        const std::byte* const first = bytes_.data() + at_;
        at_ += count;
        return first;
    }
    /// How many bytes have been taken.
    [[nodiscard]] std::uint64_t taken() const { return at_; }
    /// Some of the bytes that have been taken; valid until more are.
    [[nodiscard]] std::string_view text(std::uint64_t begin, std::uint64_t length) const {
        return {reinterpret_cast<const char*>(bytes_.data()) + begin, length};
    }
    [[nodiscard]] const std::string& path() const { return file_.path(); }

private:
    const FilePieces& file_;
    std::uint64_t begin_, length_, at_ = 0;
    std::vector<std::byte> bytes_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
