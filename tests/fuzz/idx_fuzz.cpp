// SPDX-License-Identifier: Apache-2.0
//
// The reader of idx files on any bytes: images or one error message, no more memory than the files and 1 MiB. The first two
// bytes say how many of the others are the file of labels.
#include <cupola/data/idx.hpp>

#include "../standard.hpp"
#include "support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static fuzz::InputFile images(fuzz::folder() + "/images"), labels(fuzz::folder() + "/labels");
    if (size < 2) return 0;
    std::size_t label_bytes = std::size_t{data[0]} << 8 | data[1];
    data += 2;
    size -= 2;
    if (label_bytes > size) label_bytes = size;
    labels.hold(data, label_bytes);
    images.hold(data + label_bytes, size - label_bytes);
    fuzz::answers(6 * size + (1 << 20), [&] {
        const cupola::ImageSet set = cupola::read_idx(images.path(), labels.path());
        if (set.size() != static_cast<std::int64_t>(label_bytes) - 8 ||
            16 + set.size() * set.sample_shape().size() != static_cast<std::int64_t>(size - label_bytes)) {
            fuzz::fail("not as many images as bytes", cupola::text(size));
        }
    });
    return 0;
}
