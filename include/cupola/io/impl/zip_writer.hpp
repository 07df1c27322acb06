// SPDX-License-Identifier: Apache-2.0
//
// Writes a zip archive of entries that are stored as they are, each with its data at a multiple of 64 bytes, as
// PyTorch's files have them; in ZIP64 where a number needs more than 32 bits.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cupola/core/abi.hpp>
#include <cupola/io/atomic_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The CRC-32 of zip archives; `before` is that of the bytes before these.
[[nodiscard]] inline std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) {
    // Tables for eight bytes at a time: the remainder of a byte that 0 to 7 zeros follow.
    static constexpr auto tables = [] {
        std::array<std::array<std::uint32_t, 256>, 8> result{};
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            std::uint32_t rest = byte;
            for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0xEDB8'8320U : 0U);
            result[0][byte] = rest;
        }
        for (std::size_t i = 1; i < 8; ++i) {
            for (std::size_t byte = 0; byte < 256; ++byte)
                result[i][byte] = (result[i - 1][byte] >> 8) ^ result[0][result[i - 1][byte] & 0xFF];
        }
        return result;
    }();
    std::uint32_t rest = ~before;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, bytes.data(), sizeof eight);
        eight ^= rest;
        rest = 0;
        for (std::size_t i = 0; i < 8; ++i) rest ^= tables[7 - i][eight >> (8 * i) & 0xFF];
    }
    for (const std::byte byte : bytes)
        rest = (rest >> 8) ^ tables[0][(rest ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
    return ~rest;
}

class ZipWriter {
public:
    static constexpr std::uint64_t largest = 0xFFFF'FFFF;

    /// Numbers from `zip64_from` on are written in ZIP64, which is a parameter for tests.
    explicit ZipWriter(const std::string& path, std::uint64_t zip64_from = largest)
        : file_(path), zip64_from_(zip64_from) {}

    /// Begins an entry with this many bytes, which `write` has to be given then.
    void begin(std::string name, std::uint64_t size) {
        constexpr std::uint64_t alignment = 64, fixed = 30;
        Entry entry{.name = std::move(name), .header = file_.size(), .size = size};
        std::string extra;
        if (size >= zip64_from_) {
            number<std::uint16_t>(extra, 1);
            number<std::uint16_t>(extra, 16);
            number(extra, size);
            number(extra, size);
        }
        // The extra field that PyTorch fills the space with.
        const std::uint64_t unaligned = entry.header + fixed + entry.name.size() + extra.size() + 4;
        const std::uint64_t padding = (alignment - unaligned % alignment) % alignment;
        extra += "FB";
        number(extra, static_cast<std::uint16_t>(padding));
        extra.append(padding, '\0');
        std::string header = "PK\x03\x04";
        version_and_method(header);
        number(header, std::uint32_t{0});
        for (int i = 0; i < 2; ++i) number(header, in_32_bits(size));
        number(header, static_cast<std::uint16_t>(entry.name.size()));
        number(header, static_cast<std::uint16_t>(extra.size()));
        put(header + entry.name + extra);
        entries_.push_back(std::move(entry));
    }
    void write(std::span<const std::byte> bytes) {
        file_.write(bytes);
        entries_.back().checksum = crc32(bytes, entries_.back().checksum);
    }
    void add(std::string name, std::string_view content) {
        begin(std::move(name), content.size());
        write(std::as_bytes(std::span(content)));
        end();
    }
    /// Ends an entry.
    void end() {
        std::string checksum;
        number(checksum, entries_.back().checksum);
        file_.overwrite(entries_.back().header + 14, std::as_bytes(std::span(checksum)));
    }

    /// Writes the directory and gives the file its name.
    void commit() {
        const std::uint64_t place = file_.size(), count = entries_.size();
        for (const Entry& entry : entries_) put_directory(entry);
        const std::uint64_t end = file_.size(), size = end - place;
        std::string last;
        if (place >= zip64_from_ || size >= zip64_from_ || count >= 0xFFFF) {
            last += "PK\x06\x06";
            number(last, std::uint64_t{44});
            number(last, zip64_version);
            number(last, zip64_version);
            number(last, std::uint64_t{0});
            for (const std::uint64_t each : {count, count, size, place}) number(last, each);
            last += "PK\x06\x07";
            number(last, std::uint32_t{0});
            number(last, end);
            number(last, std::uint32_t{1});
        }
        last += "PK\x05\x06";
        number(last, std::uint32_t{0});
        for (int i = 0; i < 2; ++i) number(last, static_cast<std::uint16_t>(count < 0xFFFF ? count : 0xFFFF));
        number(last, in_32_bits(size));
        number(last, in_32_bits(place));
        number(last, std::uint16_t{0});
        put(last);
        file_.commit();
    }

private:
    struct Entry {
        std::string name;
        std::uint64_t header = 0, size = 0;
        std::uint32_t checksum = 0;
    };
    static constexpr std::uint16_t zip64_version = 45;

    template <class Number>
    static void number(std::string& to, Number value) {
        static_assert(std::is_unsigned_v<Number> && std::endian::native == std::endian::little);
        to.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    /// The version that a reader needs, no flags, no compression, and 1 January 1980, the first day that there is.
    static void version_and_method(std::string& to) {
        number(to, zip64_version);
        number(to, std::uint32_t{0});
        number(to, std::uint32_t{0x0021'0000});
    }
    [[nodiscard]] std::uint32_t in_32_bits(std::uint64_t value) const {
        return static_cast<std::uint32_t>(value < zip64_from_ ? value : largest);
    }

    void put(std::string_view bytes) { file_.write(std::as_bytes(std::span(bytes))); }

    void put_directory(const Entry& entry) {
        std::string large;
        for (const std::uint64_t each : {entry.size, entry.size, entry.header}) {
            if (each >= zip64_from_) number(large, each);
        }
        std::string bytes = "PK\x01\x02";
        number(bytes, zip64_version);
        version_and_method(bytes);
        number(bytes, entry.checksum);
        for (int i = 0; i < 2; ++i) number(bytes, in_32_bits(entry.size));
        number(bytes, static_cast<std::uint16_t>(entry.name.size()));
        number(bytes, static_cast<std::uint16_t>(large.empty() ? 0 : large.size() + 4));
        bytes.append(10, '\0');
        number(bytes, in_32_bits(entry.header));
        bytes += entry.name;
        if (!large.empty()) {
            number<std::uint16_t>(bytes, 1);
            number(bytes, static_cast<std::uint16_t>(large.size()));
            bytes += large;
        }
        put(bytes);
    }

    AtomicFile file_;
    std::uint64_t zip64_from_;
    std::vector<Entry> entries_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
