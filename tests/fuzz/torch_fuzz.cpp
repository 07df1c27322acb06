// SPDX-License-Identifier: Apache-2.0
//
// The reader of files of torch.save, read_checkpoint and load_parameters on any bytes: data or one error message, and
// memory bounded by the size of the file. The first byte of an input chooses a file around the rest: the bytes
// themselves, a zip archive whose pickle they are, or the same in the format before torch 1.6.
#include <cupola/io/torch_file.hpp>

#include "../io/torch_support.hpp"
#include "../standard.hpp"
#include "support.hpp"
#include "tensors.hpp"

namespace {

using namespace cupola;

impl::FileBytes copy_of(const std::string& bytes) {
    impl::FileBytes file{std::unique_ptr<std::byte[]>(new std::byte[bytes.size()]), bytes.size()};
    if (!bytes.empty()) std::memcpy(file.bytes.get(), bytes.data(), bytes.size());
    return file;
}

std::string file_of(unsigned kind, const std::string& bytes) {
    static const std::string storage(96, '\x3F');
    if (kind % 3 == 1) return io_tests::torch_zip(bytes, {storage, storage});
    if (kind % 3 == 2) return io_tests::torch_legacy(bytes, {storage, storage});
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string bytes = file_of(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
    // What a byte of a pickle makes at most: a tuple, a value on the stack and what their lists keep free.
    const std::size_t limit = 160 * bytes.size() + (std::size_t{1} << 20);
    std::unique_ptr<TorchFile> file;
    fuzz::answers(limit, [&] { file = std::make_unique<TorchFile>("f", copy_of(bytes)); });
    if (file == nullptr) return 0;
    for (const SafeTensor& tensor : file->tensors()) {
        std::uint64_t elements = 1;
        for (const std::int64_t extent : tensor.shape()) {
            if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements)) elements = ~0ULL;
        }
        if (elements > 4096 || !impl::is_stored_float(tensor.type)) continue;
        std::vector<float> values(elements);
        fuzz::answers(limit, [&] { file->read_floats(tensor, values.data()); });
    }
    fuzz::read_as_checkpoint(*file, limit);
    return 0;
}
