// SPDX-License-Identifier: Apache-2.0
//
// The decoder of PNG, with its eXIf, on any bytes. A changed chunk would be stopped by its checksum, so the mutations set most
// checksums right again.
#include <zlib.h>

#include "../standard.hpp"
#include "images.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    if (seed % 8 == 0) return size;
    const cupola::impl::TiffBytes numbers(std::span<const std::uint8_t>(data, size), true);
    for (std::size_t at = 8; numbers.has(at, 12);) {
        const std::size_t length = numbers.read(at, 4);
        if (!numbers.has(at + 12, length)) break;
        const auto sum = static_cast<std::uint32_t>(crc32(0, data + at + 4, static_cast<uInt>(length + 4)));
        for (unsigned i = 0; i < 4; ++i) data[at + 8 + length + i] = static_cast<std::uint8_t>(sum >> (24U - 8U * i));
        at += 12 + length;
    }
    return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::check_image(cupola::impl::png_format, {data, size});
    return 0;
}
