// SPDX-License-Identifier: Apache-2.0
#include <cupola/io/fingerprint.hpp>

#include "../test.hpp"

#include <cupola/data/dataset.hpp>
#include <cupola/data/in_memory.hpp>

namespace {

ImageSet images(const char* name, std::vector<std::uint8_t> pixels, std::vector<std::int32_t> labels) {
    return {name, {1, 2, 3}, std::move(pixels), std::move(labels), {"a", "b"}};
}

}  // namespace

TEST_CASE("the fingerprint is of the elements and the labels, and not of the name") {
    const std::vector<std::uint8_t> pixels{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const std::string expected = fingerprint(images("here", pixels, {0, 1}));
    CHECK(fingerprint(images("elsewhere", pixels, {0, 1})) == expected);
    CHECK(fingerprint(images("here", pixels, {1, 0})) != expected);
    std::vector<std::uint8_t> other = pixels;
    other.back() = 13;
    CHECK(fingerprint(images("here", other, {0, 1})) != expected);
    // The checksum of all elements and then of all labels, as one run of bytes.
    std::vector<std::uint8_t> bytes = pixels;
    bytes.insert(bytes.end(), {0, 0, 0, 0, 1, 0, 0, 0});
    char digits[64];
    std::snprintf(digits, sizeof digits, "2 images, crc32c %08x", crc32c(std::as_bytes(std::span(bytes))));
    CHECK(expected == digits);
}

TEST_CASE("data that are not images are called samples") {
    const std::vector<float> values{1, 2, 3};
    const std::vector<std::int32_t> labels{0, 1, 0};
    CHECK(fingerprint(InMemory({1}, values, labels, 2)).starts_with("3 samples, crc32c "));
}
