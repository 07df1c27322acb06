// SPDX-License-Identifier: Apache-2.0
//
// The reader of image archives on any bytes: data or one error message, no more memory than its limits allow. A first byte
// of 'j' says that the rest is one image of any format, so that its decoder is reached without an archive's checksums, and one of
// 's' that the images are split by an option.
#include <cupola/data/image_folder.hpp>

#include "../standard.hpp"
#include "support.hpp"

namespace {

constexpr cupola::ImageFolderOptions limits{.files = 64,
                                            .bytes_per_file = 1 << 18,
                                            .pixels_per_image = 1 << 14,
                                            .total_bytes = 1 << 20,
                                            .dictionary_bytes = 1 << 24};

/// The memory that the libraries use besides a dictionary: blocks, the coefficients of a progressive image, and
/// zstd's window, which has a limit of its own.
constexpr std::size_t of_the_libraries = std::size_t{160} << 20;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 0 && data[0] == 'j') {
        const std::span<const std::uint8_t> bytes(data + 1, size - 1);
        fuzz::answers(of_the_libraries, [&] {
            const cupola::impl::ImageFormat& format = cupola::impl::format_of("f", bytes);
            const cupola::impl::ImageSize own = format.info("f", bytes).size;
            cupola::require<cupola::DataError>(own.height * own.width <= limits.pixels_per_image, "f is too large");
            std::vector<std::uint8_t> pixels(static_cast<std::size_t>(own.height * own.width * 3));
            format.decode("f", bytes, own, 3, pixels.data());
        });
        return 0;
    }
    static fuzz::InputFile input(fuzz::folder() + "/archive");
    cupola::ImageFolderOptions options = limits;
    const bool splits = size > 0 && data[0] == 's';
    if (splits) options.split.validation = 0.5;
    input.hold(data + (splits ? 1 : 0), size - (splits ? 1 : 0));
    fuzz::answers(size + 2 * limits.total_bytes + limits.dictionary_bytes + of_the_libraries, [&] {
        const cupola::ImageData images = cupola::read_image_folder(input.path(), 1, options);
        if (images.train.size() == 0) fuzz::fail("a data set without images", "");
    });
    return 0;
}
