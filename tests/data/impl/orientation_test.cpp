// SPDX-License-Identifier: Apache-2.0
//
// EXIF from anywhere: no byte outside of it is read (the data lies at the end of its own memory, for a sanitizer).
#include <cupola/data/impl/orientation.hpp>

#include "../../test.hpp"

#include "../files_support.hpp"

using namespace cupola_tests;

namespace {

int orientation_of(const Bytes& bytes) {
    const std::vector<std::uint8_t> alone(bytes.begin(), bytes.end());
    return impl::exif_orientation(alone);
}

/// The bytes of the entry of the orientation: tag, type, count, value.
constexpr std::size_t tag = 22, type = 24, count = 26, value = 30;

Bytes changed(std::size_t at, const Bytes& to) {
    Bytes result = exif(6);
    std::copy(to.begin(), to.end(), result.begin() + static_cast<std::ptrdiff_t>(at));
    return result;
}

}  // namespace

TEST_CASE("the orientation of EXIF is read in both orders of bytes, and other numbers than 1 to 8 mean upright") {
    for (int orientation = 1; orientation <= 8; ++orientation) {
        CHECK(orientation_of(exif(orientation)) == orientation);
        CHECK(orientation_of(exif(orientation, false)) == orientation);
    }
    for (const int other : {0, 9, 65'535}) CHECK(orientation_of(exif(other)) == 1);
    CHECK(orientation_of(changed(type, {0, 4, 0, 0, 0, 1, 0, 0, 0, 6})) == 6);  // a long number
    CHECK(orientation_of(changed(type, {0, 1, 0, 0, 0, 1, 6, 0, 0, 0})) == 1);  // a byte
    CHECK(orientation_of(changed(count, {0, 0, 0, 2})) == 6);                   // two: the first counts
    CHECK(orientation_of(changed(2, {42, 0})) == 6);  // the 42 in the other order, as some programs write it
    Bytes marked = exif(6);
    const Bytes mark{'E', 'x', 'i', 'f', 0, 0};
    marked.insert(marked.begin(), mark.begin(), mark.end());
    CHECK(orientation_of(marked) == 6);
}

TEST_CASE("broken EXIF means upright, and nothing outside of it is read") {
    const Bytes whole = exif(6);
    for (std::size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        CHECK(orientation_of(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))) ==
              (length < value + 4 ? 1 : 6));
    }
    CHECK(orientation_of(changed(0, {'M', 'I'})) == 1);
    CHECK(orientation_of(changed(2, {0, 43})) == 1);
    for (const Bytes& offset :
         {Bytes{0xFF, 0xFF, 0xFF, 0xFF}, Bytes{0, 0, 0, 37}, Bytes{0, 0, 0, 38}, Bytes{0, 0, 0, 39}})
        CHECK(orientation_of(changed(4, offset)) == 1);
    CHECK(orientation_of(changed(8, {0xFF, 0xFF})) == 6);                   // more entries than there are
    CHECK(orientation_of(changed(count, {0, 0, 0, 0})) == 1);               // no value
    CHECK(orientation_of(changed(count, {0xFF, 0xFF, 0xFF, 0xFF})) == 1);   // more than the memory
    CHECK(orientation_of(changed(count, {0, 0, 0, 3, 0, 0, 0, 33})) == 1);  // one byte outside
    CHECK(orientation_of(changed(count, {0, 0, 0, 3, 0, 0, 0, 30})) == 1);  // inside, and it is 0
    // A value of another entry that lies outside ends what can be read; one of a type that does not exist is passed over.
    CHECK(orientation_of(changed(12, {0, 2, 0, 0, 0, 5, 0xFF, 0, 0, 0})) == 1);
    CHECK(orientation_of(changed(12, {0, 99, 0, 0, 0, 5, 0xFF, 0, 0, 0})) == 6);
    std::uint32_t noise = 1;
    for (int i = 0; i < 20'000; ++i) {
        Bytes bytes = exif(6, i % 2 == 0);
        for (int k = 0; k < 3; ++k) {
            noise = noise * 1664525U + 1013904223U;
            bytes[8 + (noise >> 16U) % (bytes.size() - 8)] = static_cast<std::uint8_t>(noise >> 8U);
        }
        const int orientation = orientation_of(bytes);
        if (orientation < 1 || orientation > 8) FAIL(i);
    }
    CHECK(orientation_of(changed(tag, {0x01, 0x13})) == 1);
}

TEST_CASE("the pixels of an image of one row, of one column and of one pixel are turned") {
    const auto order = [](const impl::ImageSize& stored, int orientation) {
        std::vector<std::int64_t> result;
        impl::for_each_upright(stored, orientation, [&](std::int64_t i) { result.push_back(i); });
        return result;
    };
    for (int orientation = 1; orientation <= 8; ++orientation) {
        CHECK(order({1, 1}, orientation) == std::vector<std::int64_t>{0});
        const bool turned = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
        CHECK(order({1, 3}, orientation) ==
              (turned ? std::vector<std::int64_t>{2, 1, 0} : std::vector<std::int64_t>{0, 1, 2}));
        CHECK(impl::upright_size({1, 3}, orientation) ==
              (orientation < 5 ? impl::ImageSize{1, 3} : impl::ImageSize{3, 1}));
    }
}
