// SPDX-License-Identifier: Apache-2.0
//
// The safetensors reader, the checkpoint reader and load_parameters on any bytes: data or one error message, no more memory than the file and
// 1 MiB. What the reader takes for a header is held against nlohmann-json. An input that begins as an index of several files does is read as one.
#include <random>

#include <nlohmann/json.hpp>

#include <cupola/io/impl/shard_index.hpp>

#include "../standard.hpp"
#include "support.hpp"
#include "tensors.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace cupola;

impl::FileBytes copy_of(const std::uint8_t* data, std::size_t size) {
    impl::FileBytes file{std::unique_ptr<std::byte[]>(new std::byte[size]), size};
    if (size > 0) std::memcpy(file.bytes.get(), data, size);
    return file;
}

/// A header that our reader accepts is JSON for the other one too, with the same names and texts.
void check_against_nlohmann(const SafetensorsFile& file, std::string_view header) {
    const auto json = nlohmann::json::parse(header, nullptr, false);
    if (!json.is_object()) fuzz::fail("nlohmann-json refuses", header);
    std::size_t texts = 0;
    for (const auto& [name, value] : json.items()) {
        if (name == "__metadata__") {
            texts = value.size();
            continue;
        }
        const SafeTensor* tensor = file.find(name);
        if (tensor == nullptr) fuzz::fail("a tensor is not found", name);
        if (value.at("dtype") != tensor->type) fuzz::fail("another type", name);
        if (value.at("shape").get<std::vector<std::int64_t>>() != tensor->shape()) fuzz::fail("another shape", name);
        const auto offsets = value.at("data_offsets").get<std::vector<std::uint64_t>>();
        if (offsets != std::vector<std::uint64_t>{tensor->begin, tensor->end}) fuzz::fail("other offsets", name);
    }
    for (const auto& [key, value] : file.metadata()) {
        if (json.at("__metadata__").at(std::string(key)) != value) fuzz::fail("another text", key);
    }
    const bool same = json.size() == file.tensors().size() + (json.contains("__metadata__") ? 1U : 0U);
    if (!same || texts != file.metadata().size()) fuzz::fail("not as many tensors or texts", header);
}

/// So is an index that our reader accepts.
void check_index(const std::string& content) {
    std::unique_ptr<impl::ShardIndex> index;
    fuzz::answers(32 * content.size() + (std::size_t{1} << 16),
                  [&] { index = std::make_unique<impl::ShardIndex>(content, "f"); });
    if (index == nullptr) return;
    const auto json = nlohmann::json::parse(content, nullptr, false);
    // It refuses numbers that no double has, as 1e999.
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (std::size_t i = 0; json.is_discarded() && i + 2 < content.size(); ++i) {
        if (is_digit(content[i]) && is_digit(content[i + 1]) && is_digit(content[i + 2])) return;
    }
    if (!json.is_object() || json.at("weight_map").size() != index->entries().size())
        fuzz::fail("nlohmann-json has not as many tensors", content);
    for (const impl::ShardIndex::Entry& entry : index->entries()) {
        if (json.at("weight_map").at(std::string(entry.tensor)) != entry.file) fuzz::fail("another file", entry.file);
        if (entry.file.find('/') != entry.file.npos) fuzz::fail("another folder", entry.file);
    }
}

/// Puts the right checksum where a file has one.
void set_checksum(std::string& bytes) {
    constexpr std::string_view before = "\"crc32c\":\"";
    const std::size_t place = bytes.find(before);
    if (place == std::string::npos || place + before.size() + 8 > bytes.size()) return;
    bytes.replace(place + before.size(), 8, "00000000");
    bytes.replace(place + before.size(), 8, impl::checksum_text(crc32c(std::as_bytes(std::span(bytes)))));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t mebibyte = 1 << 20;
    const std::string content(reinterpret_cast<const char*>(data), size);
    if (impl::ShardIndex::has_format(content)) check_index(content);
    std::unique_ptr<SafetensorsFile> file;
    fuzz::answers(size + mebibyte, [&] { file = std::make_unique<SafetensorsFile>("f", copy_of(data, size)); });
    if (file == nullptr) return 0;
    std::uint64_t length = 0;
    std::memcpy(&length, data, sizeof length);
    check_against_nlohmann(*file,
                           {reinterpret_cast<const char*>(data) + sizeof length, static_cast<std::size_t>(length)});
    // The state itself and copies of the texts come in addition.
    fuzz::read_as_checkpoint(*file, size + mebibyte);
    return 0;
}

/// Changes the header or the data and puts the length right again, since few changes of the whole would pass it.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
    std::minstd_rand random(seed);
    std::uint64_t length = 0;
    if (size >= sizeof length) std::memcpy(&length, data, sizeof length);
    if (size < sizeof length || length > size - sizeof length || random() % 8 == 0) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    std::string header(reinterpret_cast<const char*>(data) + sizeof length, static_cast<std::size_t>(length));
    std::string rest(reinterpret_cast<const char*>(data) + sizeof length + length,
                     size - sizeof length - header.size());
    std::string& part = random() % 4 == 0 ? rest : header;
    const std::size_t room = std::min<std::size_t>(max_size - size + part.size(), part.size() + 64);
    const std::size_t old = part.size();
    part.resize(std::max<std::size_t>(room, 1));
    part.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(part.data()), old, room));
    length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += header;
    bytes += rest;
    if (random() % 4 != 0) set_checksum(bytes);
    if (bytes.size() > max_size) bytes.resize(max_size);
    std::memcpy(data, bytes.data(), bytes.size());
    return bytes.size();
}
