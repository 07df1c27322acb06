// SPDX-License-Identifier: Apache-2.0
#include <cupola/data/impl/jpeg_decoder.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <doctest/doctest.h>
#include <jpeglib.h>
#include <throws_with.hpp>

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
    jpeg_compress_struct state{};
    jpeg_error_mgr errors{};
    state.err = jpeg_std_error(&errors);
    jpeg_create_compress(&state);
    unsigned char* memory = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&state, &memory, &size);
    state.image_height = static_cast<JDIMENSION>(extent);
    state.image_width = static_cast<JDIMENSION>(extent);
    state.input_components = 3;
    state.in_color_space = JCS_RGB;
    jpeg_set_defaults(&state);
    state.scan_info = scans.data();
    state.num_scans = static_cast<int>(scans.size());
    jpeg_start_compress(&state, TRUE);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(extent) * 3, 200);
    while (state.next_scanline < state.image_height) {
        JSAMPROW pointer = row.data();
        jpeg_write_scanlines(&state, &pointer, 1);
    }
    jpeg_finish_compress(&state);
    std::vector<std::uint8_t> bytes(memory, memory + size);
    jpeg_destroy_compress(&state);
    std::free(memory);
    return bytes;
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

TEST_CASE("a progressive JPEG of so many scans that it could take hours is refused") {
    const std::vector<std::uint8_t> bytes = progressive(16, 40);
    const impl::ImageSize size = impl::jpeg_size("a.jpg", bytes);
    std::vector<std::uint8_t> pixels(16 * 16 * 3);
    CHECK(message_of<DataError>([&] { impl::decode_jpeg("a.jpg", bytes, size, 3, pixels.data()); }) ==
          "a.jpg is not a JPEG image that can be read: it has more than 100 scans");
}
