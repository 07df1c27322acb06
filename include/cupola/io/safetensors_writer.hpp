// SPDX-License-Identifier: Apache-2.0
//
// Writes a safetensors file, atomically (io/atomic_file.hpp): first all names, types and extents, then the bytes of the
// tensors in that order, in parts, so that no copy of the whole is needed.
//
//   SafetensorsWriter file("model.safetensors", {{"weight", "F32", {10, 192}}}, {{"step", "1000"}});
//   file.write(bytes);
//   file.commit();
//
// The header is padded to a multiple of 8 bytes with spaces. `__metadata__` gains `crc32c`, the CRC-32C of the whole
// file with these eight digits as zeros. Throws DataError if the file cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/atomic_file.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/safetensors.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Appends `value` as a JSON string, quotes included. Throws InvalidArgument where it is not UTF-8.
[[gnu::cold]] inline void append_json_string(std::string& json, std::string_view value) {
    json += '"';
    for (std::size_t i = 0; i < value.size();) {
        const std::size_t length = utf8_length(value.substr(i));
        require(length > 0, "a string for a safetensors header is not UTF-8 at byte ", i);
        append_json_character(json, value.substr(i, length));
        i += length;
    }
    json += '"';
}

}  // namespace impl

/// A tensor to be written.
struct TensorHeader {
    std::string name;
    std::string_view type;
    std::vector<std::int64_t> shape;
};

class SafetensorsWriter {
public:
    using Metadata = std::vector<std::pair<std::string, std::string>>;

    [[gnu::cold]] SafetensorsWriter(const std::string& path, std::span<const TensorHeader> tensors,
                                    const Metadata& metadata)
        : path_(path), file_(path) {
        std::string header = metadata_text(metadata);
        const std::size_t digits = sizeof(std::uint64_t) + header.size() - impl::checksum_digits - 2;
        require(tensors.size() <= SafetensorsFile::max_tensors, path_, " cannot have ", tensors.size(),
                " tensors; at most ", SafetensorsFile::max_tensors, " are supported");
        std::set<std::string_view> names{"__metadata__"};
        for (const TensorHeader& tensor : tensors) {
            require(names.insert(tensor.name).second, path_, " cannot have two tensors named ", tensor.name);
            add_tensor(header, tensor);
        }
        header += '}';
        header.append((8 - header.size() % 8) % 8, ' ');
        const std::uint64_t length = header.size();
        append(std::as_bytes(std::span(&length, 1)));
        append(std::as_bytes(std::span(header)));
        digits_ = digits;
        expected_ += file_.size();
    }

    /// The next bytes of the data.
    void write(std::span<const std::byte> bytes) {
        require(bytes.size() <= expected_ - file_.size(), path_, " was given more bytes than its tensors have");
        append(bytes);
    }

    /// Gives the file its name, after all bytes are written.
    void commit() {
        require(file_.size() == expected_, path_, " lacks ", expected_ - file_.size(), " bytes of its tensors");
        const std::string digits = impl::checksum_text(checksum_);
        file_.overwrite(digits_, std::as_bytes(std::span(digits)));
        file_.commit();
    }

private:
    /// The header's beginning, with the checksum's digits as zeros after the other texts.
    [[nodiscard, gnu::cold]] std::string metadata_text(const Metadata& metadata) const {
        std::string json = "{\"__metadata__\":{";
        std::set<std::string_view> keys{impl::checksum_key};
        require(metadata.size() < SafetensorsFile::max_metadata, path_, " cannot have ", metadata.size(),
                " metadata entries; at most ", SafetensorsFile::max_metadata - 1, " are supported");
        for (const auto& [key, value] : metadata) {
            require(keys.insert(key).second, path_, " cannot have two metadata entries named ", key);
            impl::append_json_string(json, key);
            json += ':';
            impl::append_json_string(json, value);
            json += ',';
        }
        impl::append_json_string(json, impl::checksum_key);
        json += ':';
        impl::append_json_string(json, impl::checksum_text(0));
        json += '}';
        return json;
    }

    void add_tensor(std::string& header, const TensorHeader& tensor) {
        std::uint64_t bytes = impl::safetensors_element_bytes(tensor.type);
        require(bytes > 0, path_, ": the tensor ", tensor.name, " has the unknown type ", tensor.type);
        header += ',';
        impl::append_json_string(header, tensor.name);
        header += text(":{\"dtype\":\"", tensor.type, "\",\"shape\":[");
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            require(tensor.shape[i] >= 0, path_, ": the tensor ", tensor.name, " has an extent of ", tensor.shape[i]);
            bytes *= static_cast<std::uint64_t>(tensor.shape[i]);
            header += text(i == 0 ? "" : ",", tensor.shape[i]);
        }
        header += text("],\"data_offsets\":[", expected_, ',', expected_ + bytes, "]}");
        expected_ += bytes;
    }

    void append(std::span<const std::byte> bytes) {
        file_.write(bytes);
        checksum_ = crc32c(bytes, checksum_);
    }

    std::string path_;
    AtomicFile file_;
    /// First the bytes of the data; after the header is written, those of the whole file.
    std::uint64_t expected_ = 0;
    std::uint64_t digits_ = 0;
    std::uint32_t checksum_ = 0;
};

}}  // namespace cupola::CUPOLA_ABI
