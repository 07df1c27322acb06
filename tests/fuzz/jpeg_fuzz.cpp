// SPDX-License-Identifier: Apache-2.0
//
// The decoder of JPEG, with its EXIF, on any bytes.
#include "../standard.hpp"
#include "images.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::check_image(cupola::impl::jpeg_format, {data, size});
    return 0;
}
