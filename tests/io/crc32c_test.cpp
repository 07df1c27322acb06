// SPDX-License-Identifier: Apache-2.0
#include "../test.hpp"

#include <cupola/io/crc32c.hpp>

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("CRC-32C gives the checksums of RFC 3720, B.4") {
    std::array<std::uint8_t, 32> data{};
    const auto crc = [&] { return cupola::crc32c(std::as_bytes(std::span(data))); };
    CHECK(crc() == 0x8A9136AA);  // 32 zeros
    data.fill(0xFF);
    CHECK(crc() == 0x62A8AB43);
    std::iota(data.begin(), data.end(), std::uint8_t{0});
    CHECK(crc() == 0x46DD794E);
    std::iota(data.rbegin(), data.rend(), std::uint8_t{0});
    CHECK(crc() == 0x113FDB5C);
    const std::array<std::uint8_t, 48> read_command = {0x01, 0xC0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                                       0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                                       0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    CHECK(cupola::crc32c(std::as_bytes(std::span(read_command))) == 0xD9963A56);
    CHECK(cupola::crc32c(bytes_of("123456789")) == 0xE3069283);
    CHECK(cupola::crc32c({}) == 0);
}

TEST_CASE("CRC-32C of two pieces is that of the whole, for every split") {
    const std::string_view whole = "a checkpoint is written in pieces and read as one";
    for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
        CHECK(cupola::crc32c(bytes_of(whole.substr(cut)), cupola::crc32c(bytes_of(whole.substr(0, cut)))) ==
              cupola::crc32c(bytes_of(whole)));
    }
}

TEST_CASE("The masked CRC-32C is the one in the head of a TensorFlow record") {
    // From TensorFlow's record writer: the head of a record of 24 bytes ends in A3 7F 4B 22.
    const std::array<std::uint8_t, 8> length = {24, 0, 0, 0, 0, 0, 0, 0};
    CHECK(cupola::masked_crc32c(std::as_bytes(std::span(length))) == 0x224B7FA3);
}
