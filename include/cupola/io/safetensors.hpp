// SPDX-License-Identifier: Apache-2.0
//
// Reads a safetensors file: eight bytes, the length of a header; the header, JSON; the tensors' bytes without a hole.
//
// The file is checked when it is opened: lengths, types, extents against bytes, every byte of the data in exactly one
// tensor, no name twice, and Cupola's checksum (`crc32c` in `__metadata__`: CRC-32C of the file with these eight digits
// as zeros) where there is one. Anything else throws DataError. A SafetensorsFile is read as a whole;
// `open_tensor_file` reads the header alone, and the tensors stay in the file. In addition to these bytes, less than
// 1 MiB is allocated, whatever the file contains. io/safetensors_writer.hpp writes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/json_text.hpp>
#include <cupola/io/impl/safetensors_header.hpp>
#include <cupola/io/impl/stored_floats.hpp>
#include <cupola/io/impl/whole_file.hpp>
#include <cupola/io/tensor_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian, and read as they are");

namespace impl {

inline constexpr std::string_view checksum_key = "crc32c";
inline constexpr std::size_t checksum_digits = 8;

/// What a file of another format is, as its first bytes show, and what to do: "a Git LFS pointer and not the file
/// itself, ...". Empty if they show no known format.
[[nodiscard, gnu::cold]] inline std::string other_format(std::string_view bytes) {
    struct Format {
        std::string_view begin, what;
    };
    using namespace std::string_view_literals;
    static constexpr std::string_view of_pytorch =
        "of torch.save, and not in the safetensors format: in Python, "
        "safetensors.torch.save_file(torch.load(path, weights_only=True), new_path) writes its tensors so";
    static constexpr std::array<Format, 9> formats{
        {{"version https://git-lfs", "a Git LFS pointer and not the file itself, which `git lfs pull` fetches"},
         {"PK\x03\x04"sv, ""},
         {"GGUF", "a GGUF file, and not in the safetensors format"},
         {"\x89HDF"sv, "an HDF5 file, as Keras writes them, and not in the safetensors format"},
         {"\x93NUMPY"sv, "a NumPy file, and not in the safetensors format"},
         {"\x1F\x8B"sv, "packed by gzip, which `gzip -d` unpacks"},
         {"<!doctype html", "an HTML page and not the file itself: the download has returned a page"},
         {"<html", "an HTML page and not the file itself: the download has returned a page"},
         {"<?xml", "an XML document and not the file itself: the download has returned a message"}}};
    const auto begins = [&](std::string_view with) {
        return bytes.size() >= with.size() &&
               std::equal(with.begin(), with.end(), bytes.begin(), [](char wanted, char c) {
                   return wanted == c || (wanted >= 'a' && wanted <= 'z' && wanted - 'a' == c - 'A');
               });
    };
    if (begins_safetensors(bytes)) return {};
    if (bytes.starts_with(utf8_byte_order_mark)) bytes.remove_prefix(utf8_byte_order_mark.size());
    bytes.remove_prefix(std::min(bytes.size(), bytes.find_first_not_of(" \t\r\n")));
    for (const Format& format : formats) {
        if (!begins(format.begin)) continue;
        return format.what.empty() ? text("a zip archive, such as those ", of_pytorch) : std::string(format.what);
    }
    if (bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5)
        return text("a pickle of Python, such as those ", of_pytorch);
    if (!bytes.starts_with('{')) return {};
    return bytes.find("\"weight_map\"") == bytes.npos
               ? "a JSON text, and not in the safetensors format"
               : "an index of several files, which open_tensor_file reads as one";
}

/// The checksum as its digits.
[[nodiscard]] inline std::string checksum_text(std::uint32_t checksum) {
    std::string digits(checksum_digits, '0');
    for (std::size_t i = 0; i < checksum_digits; ++i) digits[i] = "0123456789abcdef"[checksum >> (28 - 4 * i) & 15];
    return digits;
}

/// A safetensors file whose tensors stay where they are, in the file or in memory.
class SafetensorsReader : public TensorFile {
public:
    explicit SafetensorsReader(const std::string& path) : SafetensorsReader(FilePieces(path)) {}
    [[gnu::cold]] explicit SafetensorsReader(FilePieces file) : TensorFile(file.path()), file_(std::move(file)) {
        if (!begins_safetensors(first_characters(file_))) require_known_format();
        const std::uint64_t length = header_length(file_);
        require<DataError>(file_.size() >= sizeof length, path_, " is truncated or is not a safetensors file: it has ",
                           file_.size(), " bytes, and the length of the header takes 8");
        require<DataError>(length <= file_.size() - sizeof length, path_,
                           " is truncated or is not a safetensors file: its header has ", length, " bytes, and ",
                           file_.size() - sizeof length, " follow");
        data_ = sizeof length + length;
        read_header(length);
        SafetensorsHeader content({header_, length}, path_);
        tensors_ = std::move(content.tensors);
        metadata_ = std::move(content.metadata);
        check_places();
        check_checksum();
        unescape_all();
        check_names();
    }

protected:
    /// Of a tensor in memory.
    [[nodiscard]] std::span<const std::byte> bytes_in_memory(const SafeTensor& tensor) const {
        return {file_.in_memory() + data_ + tensor.begin, tensor.end - tensor.begin};
    }

private:
    /// 0 for a file that is too short to have it.
    [[nodiscard]] static std::uint64_t header_length(const FilePieces& file) {
        std::uint64_t length = 0;
        if (file.size() >= sizeof length) file.read(0, std::as_writable_bytes(std::span(&length, 1)));
        return length;
    }

    void read_some(const SafeTensor& tensor, std::uint64_t first, std::span<float> to) const override {
        const std::uint64_t element = safetensors_element_bytes(tensor.type);
        std::uint64_t at = data_ + tensor.begin + first * element;
        if (tensor.type == "F32") return file_.read(at, std::as_writable_bytes(to));
        std::array<std::byte, piece_bytes> bytes;
        while (!to.empty()) {
            const std::span<float> part = to.first(std::min(to.size(), piece_bytes / element));
            const std::span<std::byte> stored = std::span(bytes).first(part.size() * element);
            file_.read(at, stored);
            read_stored_floats(tensor.type, stored, part.data());
            at += stored.size();
            to = to.subspan(part.size());
        }
    }

    [[gnu::cold]] void require_known_format() const {
        constexpr std::uint64_t enough = std::uint64_t{1} << 16;
        const std::vector<std::byte> begin = file_.read(0, std::min(file_.size(), enough));
        const std::string other = other_format({reinterpret_cast<const char*>(begin.data()), begin.size()});
        if (!other.empty()) throw DataError(text(path_, " is ", other));
    }

    void read_header(std::uint64_t length) {
        if (std::byte* const memory = file_.in_memory(); memory != nullptr) {
            header_ = reinterpret_cast<char*>(memory) + sizeof length;
            return;
        }
        own_header_.reset(new (std::nothrow) char[length]);
        require<OutOfMemory>(own_header_ != nullptr, path_, " has a header of ", length,
                             " bytes, more than the memory that could be allocated");
        header_ = own_header_.get();
        file_.read(sizeof length, std::as_writable_bytes(std::span(header_, length)));
    }

    /// Every byte of the data belongs to exactly one tensor.
    void check_places() {
        heap_sort(tensors_, [](const SafeTensor& a, const SafeTensor& b) {
            return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
        });
        const std::uint64_t stored = file_.size() - data_;
        std::uint64_t at = 0;
        for (const SafeTensor& tensor : tensors_) {
            require<DataError>(tensor.begin == at, path_,
                               " is damaged: ", tensor.begin < at ? "two tensors share" : "no tensor has", " byte ",
                               std::min(tensor.begin, at), " of its data");
            at = tensor.end;
        }
        require<DataError>(at <= stored, path_, " is truncated: ", at - std::min(at, stored), " of the ", at,
                           " bytes of its tensors are missing");
        require<DataError>(at == stored, path_, " is damaged: it has ", stored - at, " bytes after its last tensor");
    }

    void check_checksum() {
        for (const auto& [key, value] : metadata_) {
            if (key != checksum_key) continue;
            require<DataError>(!has_checksum_ && value.size() == checksum_digits, path_,
                               " is damaged: its checksum is not a number of 8 hexadecimal digits");
            has_checksum_ = true;
            const std::uint64_t place = sizeof data_ + static_cast<std::uint64_t>(value.data() - header_);
            static constexpr std::array<char, checksum_digits> zeros{'0', '0', '0', '0', '0', '0', '0', '0'};
            std::uint32_t checksum = checksum_of(0, place, 0);
            checksum = crc32c(std::as_bytes(std::span(zeros)), checksum);
            checksum = checksum_of(place + zeros.size(), file_.size(), checksum);
            require<DataError>(value == checksum_text(checksum), path_, " is damaged: its checksum should be ",
                               shown(value), " and is ", checksum_text(checksum));
        }
    }
    /// That of the file's bytes from `begin` to `end`, after others with the checksum `before`.
    [[nodiscard]] std::uint32_t checksum_of(std::uint64_t begin, std::uint64_t end, std::uint32_t before) const {
        std::array<std::byte, piece_bytes> bytes;
        while (begin < end) {
            const std::span<std::byte> piece =
                std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), end - begin));
            file_.read(begin, piece);
            before = crc32c(piece, before);
            begin += piece.size();
        }
        return before;
    }

    /// Replaces the texts by what they represent, in place: after the checksum, which covers the file as it was.
    void unescape_all() {
        const auto in_place = [&](std::string_view& written) {
            written = unescape(header_ + (written.data() - header_), written);
        };
        for (SafeTensor& tensor : tensors_) in_place(tensor.name);
        for (auto& [key, value] : metadata_) {
            in_place(key);
            in_place(value);
        }
    }

    [[gnu::cold]] void check_names() {
        heap_sort(tensors_, {}, &SafeTensor::name);
        const auto tensor = std::ranges::adjacent_find(tensors_, {}, &SafeTensor::name);
        if (tensor != tensors_.end()) {
            throw DataError(text(path_, " is damaged: it has two tensors named ", shown(tensor->name)));
        }
        std::vector<std::string_view> keys;
        keys.reserve(metadata_.size());
        for (const auto& [key, value] : metadata_) keys.push_back(key);
        heap_sort(keys);
        const auto key = std::ranges::adjacent_find(keys);
        if (key != keys.end())
            throw DataError(text(path_, " is damaged: it has two metadata entries named ", shown(*key)));
    }

    /// The most bytes that are on the stack at a time.
    static constexpr std::size_t piece_bytes = std::size_t{1} << 16;

    FilePieces file_;
    /// In the file in memory, or here.
    char* header_ = nullptr;
    std::unique_ptr<char[]> own_header_;
    std::uint64_t data_ = 0;
};

}  // namespace impl

/// A safetensors file in memory.
class SafetensorsFile : public impl::SafetensorsReader {
public:
    static constexpr std::size_t max_tensors = impl::max_safetensors, max_metadata = impl::max_safetensors_texts;

    explicit SafetensorsFile(const std::string& path) : SafetensorsFile(path, impl::read_whole_file(path)) {}
    /// From bytes in memory; `path` is for messages.
    [[gnu::cold]] SafetensorsFile(std::string path, impl::FileBytes file)
        : SafetensorsReader(impl::FilePieces(std::move(path), std::move(file))) {}

    [[nodiscard]] std::span<const std::byte> bytes(const SafeTensor& tensor) const { return bytes_in_memory(tensor); }
};

}}  // namespace cupola::CUPOLA_ABI
