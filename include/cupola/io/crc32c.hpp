// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli), the checksum of checkpoints and of TensorBoard's event files: the reflected polynomial
// 0x82F63B78, as in RFC 3720, appendix B.4. Eight bytes at a time from eight tables ("slicing by 8"), which are
// computed by the compiler.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

using Crc32cTables = std::array<std::array<std::uint32_t, 256>, 8>;

[[nodiscard]] consteval Crc32cTables make_crc32c_tables() {
    constexpr std::uint32_t polynomial = 0x82F63B78;
    Crc32cTables tables{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
        tables[0][i] = crc;
    }
    // Table k is for a byte that is followed by k more bytes.
    for (std::size_t k = 1; k < tables.size(); ++k) {
        for (std::size_t i = 0; i < 256; ++i) {
            const std::uint32_t before = tables[k - 1][i];
            tables[k][i] = (before >> 8) ^ tables[0][before & 0xFF];
        }
    }
    return tables;
}

inline constexpr Crc32cTables crc32c_tables = make_crc32c_tables();

}  // namespace impl

/// The checksum of `bytes`; of several pieces when each is given the checksum of those before it.
[[nodiscard]] inline std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) {
    static_assert(std::endian::native == std::endian::little, "the eight bytes are read as one little-endian number");
    const auto& table = impl::crc32c_tables;
    std::uint32_t crc = ~before;
    const std::byte* p = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; p += 8, left -= 8) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, p, sizeof eight);
        eight ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; ++k) crc ^= table[7 - k][(eight >> (8 * k)) & 0xFF];
    }
    for (; left > 0; ++p, --left) crc = (crc >> 8) ^ table[0][(crc ^ static_cast<std::uint32_t>(*p)) & 0xFF];
    return ~crc;
}

/// The checksum as TensorFlow's record files store it: rotated by 15 bits and added to a constant, so that data may
/// contain checksums itself.
[[nodiscard]] inline std::uint32_t masked_crc32c(std::span<const std::byte> bytes) {
    constexpr std::uint32_t mask_delta = 0xA282EAD8;
    return std::rotr(crc32c(bytes), 15) + mask_delta;
}

}}  // namespace cupola::CUPOLA_ABI
