// SPDX-License-Identifier: Apache-2.0
//
// Opens what has named tensors by its first bytes: a safetensors file, a file of PyTorch's `torch.save`, or the index
// of a model that is stored in several such files, Hugging Face's model.safetensors.index.json and
// pytorch_model.bin.index.json.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/safetensors_header.hpp>
#include <cupola/io/impl/shard_index.hpp>
#include <cupola/io/safetensors.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/io/torch_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Opens one file, which is not an index. The first bytes tell the format; the name tells which message a file of no
/// known format gets.
[[nodiscard, gnu::cold]] inline std::unique_ptr<TensorFile> open_one_tensor_file(const std::string& path) {
    const FilePieces file(path);
    const std::string begin = first_characters(file);
    const bool named_as_torch = path.ends_with(".pth") || path.ends_with(".pt") || path.ends_with(".bin");
    if (TorchFile::has_format(begin) || (named_as_torch && !begins_safetensors(begin) && other_format(begin).empty()))
        return std::make_unique<TorchFile>(path);
    return std::make_unique<SafetensorsReader>(path);
}

}  // namespace impl

/// The tensors that an index names, each from the file that it names for it. The files lie in the index's folder and
/// stay open; tensors in them that the index does not name are left out. Throws DataError with the name of a tensor
/// whose file is missing, damaged or without it.
class ShardedFile : public TensorFile {
public:
    static constexpr std::size_t max_index_bytes = std::size_t{1} << 24, max_files = 512;

    [[gnu::cold]] explicit ShardedFile(const std::string& path) : TensorFile(path), index_(index_text(path), path) {
        std::vector<impl::ShardIndex::Entry> by_file = index_.entries();
        heap_sort(by_file, {}, [](const auto& entry) { return std::pair(entry.file, entry.tensor); });
        for (const impl::ShardIndex::Entry& entry : by_file) {
            if (!files_.empty() && files_.back().name == entry.file) continue;
            require<DataError>(files_.size() < max_files, path, " names more than ", max_files, " files");
            files_.push_back({entry.file, open(entry)});
        }
        tensors_.reserve(index_.entries().size());
        for (const impl::ShardIndex::Entry& entry : index_.entries()) {
            const TensorFile& file = file_of(entry.file);
            const SafeTensor* const tensor = file.find(entry.tensor);
            if (tensor == nullptr)
                throw DataError(text(path_, " is damaged: its tensor ", impl::shown(entry.tensor), " is not in ",
                                     impl::shown(file.path())));
            tensors_.push_back(*tensor);
        }
        const auto same_wrapper = [&](const File& file) { return file.file->wrapper() == files_[0].file->wrapper(); };
        if (!files_.empty() && std::ranges::all_of(files_, same_wrapper)) wrapper_ = files_[0].file->wrapper();
    }

private:
    struct File {
        std::string_view name;
        std::unique_ptr<TensorFile> file;
    };

    [[nodiscard]] static std::string index_text(const std::string& path) {
        const impl::FilePieces file(path);
        require<DataError>(file.size() <= max_index_bytes, path, " has ", file.size(), " bytes, and an index at most ",
                           max_index_bytes);
        std::string characters(file.size(), '\0');
        file.read(0, std::as_writable_bytes(std::span(characters)));
        return characters;
    }

    [[nodiscard]] std::unique_ptr<TensorFile> open(const impl::ShardIndex::Entry& entry) const {
        try {
            // npos + 1 is 0: no folder.
            return impl::open_one_tensor_file(text(path_.substr(0, path_.rfind('/') + 1), entry.file));
        } catch (const DataError& error) {
            throw DataError(
                text(path_, ": the file of its tensor ", impl::shown(entry.tensor), " cannot be used: ", error.what()));
        }
    }

    [[nodiscard]] const TensorFile& file_of(std::string_view name) const {
        return *std::ranges::lower_bound(files_, name, {}, &File::name)->file;
    }

    void read_some(const SafeTensor& tensor, std::uint64_t first, std::span<float> to) const override {
        const auto place = static_cast<std::size_t>(find(tensor.name) - tensors_.data());
        file_of(index_.entries()[place].file).read_floats(tensor, first, to);
    }

    impl::ShardIndex index_;
    std::vector<File> files_;
};

/// Opens a file of tensors by its first bytes. Throws DataError, and an UnreadableFile.
[[nodiscard]] inline std::unique_ptr<TensorFile> open_tensor_file(const std::string& path) {
    if (impl::ShardIndex::has_format(impl::first_characters(impl::FilePieces(path))))
        return std::make_unique<ShardedFile>(path);
    return impl::open_one_tensor_file(path);
}

}}  // namespace cupola::CUPOLA_ABI
