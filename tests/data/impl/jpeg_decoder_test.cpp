// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/impl/jpeg_decoder.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "../files_support.hpp"
#include "throws_with.hpp"

using namespace cupola;

namespace {

/// A progressive image whose coefficients are sent one by one, so that it has 3 + 3 * `coefficients` scans.
std::vector<std::uint8_t> progressive(int extent, int coefficients) {
    std::vector<jpeg_scan_info> scans;
    for (int component = 0; component < 3; ++component) {
        for (int k = 0; k <= coefficients; ++k) {
            jpeg_scan_info scan{};
            scan.comps_in_scan = 1;
            scan.component_index[0] = component;
            scan.Ss = k;
            scan.Se = k;
            scans.push_back(scan);
        }
    }
    return cupola_tests::jpeg_of_rows(
        extent, extent, [](std::vector<std::uint8_t>& row) { std::ranges::fill(row, 200); }, scans);
}

}  // namespace

TEST_CASE("a progressive JPEG of a usual number of scans is read") {
    const std::vector<std::uint8_t> bytes = progressive(16, 20);
    const impl::ImageSize size = impl::jpeg_size("a.jpg", bytes);
    CHECK(size.height == 16);
    std::vector<std::uint8_t> pixels(16 * 16 * 3);
    impl::decode_jpeg("a.jpg", bytes, size, 3, pixels.data());
    CHECK(pixels == std::vector<std::uint8_t>(16 * 16 * 3, 200));
}

TEST_CASE("a progressive JPEG of so many scans that it could take hours is rejected") {
    const std::vector<std::uint8_t> bytes = progressive(16, 40);
    const impl::ImageSize size = impl::jpeg_size("a.jpg", bytes);
    std::vector<std::uint8_t> pixels(16 * 16 * 3);
    CHECK(message_of<DataError>([&] { impl::decode_jpeg("a.jpg", bytes, size, 3, pixels.data()); }) ==
          "a.jpg is not a readable JPEG image: it has more than 100 scans");
}
