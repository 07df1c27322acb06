// SPDX-License-Identifier: Apache-2.0
//
// The reader of CIFAR-10's binary files on any bytes, which stand in all six of its files: data or one error message, no
// more memory than the files and 1 MiB.
#include <unistd.h>

#include <cupola/data/cifar10.hpp>

#include "../standard.hpp"
#include "support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static fuzz::InputFile input = [] {
        fuzz::InputFile file(fuzz::folder() + "/data_batch_1.bin");
        for (const char* name : {"data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
            const std::string path = fuzz::folder() + "/" + name + ".bin";
            unlink(path.c_str());
            if (link(file.path().c_str(), path.c_str()) != 0) fuzz::fail("no link", path);
        }
        return file;
    }();
    input.hold(data, size);
    const bool good = fuzz::answers(6 * size + (1 << 20), [&] {
        const cupola::ImageData images = cupola::read_cifar10(fuzz::folder());
        const auto records = static_cast<std::int64_t>(size / 3073);
        if (images.train.size() != 5 * records || images.test.size() != records) {
            fuzz::fail("not as many images as records", cupola::text(size));
        }
    });
    bool valid = size > 0 && size % 3073 == 0;
    for (std::size_t i = 0; valid && i < size; i += 3073) valid = data[i] < 10;
    if (good != valid) fuzz::fail(valid ? "valid files were refused" : "invalid files were read", "");
    return 0;
}
