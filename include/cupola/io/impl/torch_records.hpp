// SPDX-License-Identifier: Apache-2.0
//
// The pickle of a file of PyTorch's `torch.save`, and where in the file the storages lie that it states: for the zip
// format and for the one before torch 1.6.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/pickle.hpp>
#include <cupola/io/impl/pickle_values.hpp>
#include <cupola/io/impl/strided_view.hpp>
#include <cupola/io/impl/zip_directory.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// Of a storage in the file; without a place where the file lacks it.
struct StoragePlace {
    static constexpr std::uint64_t absent = ~std::uint64_t{0};
    std::uint64_t begin = absent, bytes = 0;
};

class TorchRecords {
public:
    /// `file` must live as long as this. Throws DataError.
    TorchRecords(const FilePieces& file, bool is_zip) : file_(file), path_(file.path()) {
        root_ = is_zip ? read_zip() : read_legacy();
    }

    /// The object that was saved.
    [[nodiscard]] PickleValue root() const { return root_; }
    [[nodiscard]] const PickleTables& tables() const { return tables_; }
    /// In the order of the storages in `tables()`.
    [[nodiscard]] const StoragePlace& place(std::size_t storage) const { return places_[storage]; }
    [[nodiscard]] std::string_view text_of(const PickleValue& value) const { return impl::text_of(*pickle_, value); }
    /// The values of a list or tuple; keys and values of a dictionary.
    [[nodiscard]] std::span<const PickleValue> items(const PickleValue& list) const {
        return tables_.lists[list.index()];
    }
    /// Null if the dictionary has no such key.
    [[nodiscard]] const PickleValue* value_of(const PickleValue& dictionary, std::string_view key) const {
        const std::span<const PickleValue> all = items(dictionary);
        for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
            if (all[i].kind == PickleKind::text && text_of(all[i]) == key) return &all[i + 1];
        }
        return nullptr;
    }

private:
    [[nodiscard, gnu::cold]] PickleValue read_zip() {
        const ZipDirectory archive(file_);
        const auto program = std::ranges::find_if(archive.entries(), [](const ZipEntry& entry) {
            return entry.name.ends_with("/constants.pkl") || entry.name.find("/code/") != entry.name.npos;
        });
        require<DataError>(program == archive.entries().end(), path_,
                           " is a program of TorchScript, of torch.jit.save, which cannot be read: in Python, "
                           "torch.save(torch.jit.load(path).state_dict(), new_path) writes its tensors");
        constexpr std::string_view pickle = "data.pkl";
        const auto entry = std::ranges::find_if(archive.entries(), [&](const ZipEntry& each) {
            return each.name == pickle || each.name.ends_with("/data.pkl");
        });
        require<DataError>(entry != archive.entries().end(), path_,
                           " is a zip archive, and not one of torch.save: it has no data.pkl");
        const std::string folder(entry->name.substr(0, entry->name.size() - pickle.size()));
        if (const ZipEntry* const order = archive.find(folder + "byteorder"); order != nullptr) {
            std::array<std::byte, 3> characters{};
            const std::uint64_t at = archive.data_of(*order);
            require<DataError>(order->size >= characters.size(), path_, " is damaged: its ", order->name, " has ",
                               order->size, " bytes, and neither \"little\" nor \"big\"");
            file_.read(at, characters);
            require_little_endian(characters[0] != std::byte{'b'});
        }
        const std::uint64_t begin = archive.data_of(*entry);
        pickle_ = std::make_unique<FileFront>(file_, begin, begin + entry->size);
        const PickleValue root = Pickle(*pickle_, tables_).result();
        std::string name;
        for (const PickleStorage& storage : tables_.storages) {
            name = folder + "data/";
            name += text_of(storage.key);
            const ZipEntry* const data = archive.find(name);
            places_.push_back(data == nullptr ? StoragePlace() : StoragePlace{archive.data_of(*data), data->size});
        }
        return root;
    }

    void require_little_endian(bool little) const {
        require<DataError>(little, path_, " has big-endian numbers, which cannot be read");
    }

    /// The format before torch 1.6: pickles of a magic number, a version, a description of the machine, the object and
    /// the keys of the storages; then, per storage, its size and its bytes.
    [[nodiscard, gnu::cold]] PickleValue read_legacy() {
        pickle_ = std::make_unique<FileFront>(file_, 0, file_.size());
        const auto next = [&] { return Pickle(*pickle_, tables_).result(); };
        const PickleValue magic = next();
        using namespace std::string_view_literals;
        constexpr std::string_view wanted = "\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19"sv;
        require<DataError>(magic.kind == PickleKind::other && pickle_->taken() > wanted.size() &&
                               pickle_->text(pickle_->taken() - wanted.size() - 1, wanted.size()) == wanted,
                           path_, " is a pickle of Python, and not one of torch.save");
        const PickleValue version = next();
        require<DataError>(version.kind == PickleKind::integer && version.number == 1001, path_,
                           " has another version of torch.save's format than 1001");
        const PickleValue machine = next();
        if (machine.kind == PickleKind::dictionary) {
            const PickleValue* const little = value_of(machine, "little_endian");
            require_little_endian(little == nullptr || little->kind != PickleKind::boolean || little->number != 0);
        }
        const PickleValue root = next(), keys = next();
        require<DataError>(keys.kind == PickleKind::list, path_, " is damaged: it has no list of its storages");
        place_legacy_storages(items(keys));
        return root;
    }

    [[gnu::cold]] void place_legacy_storages(std::span<const PickleValue> keys) {
        places_.resize(tables_.storages.size());
        std::vector<std::size_t> order(tables_.storages.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto key_of = [&](std::size_t storage) { return text_of(tables_.storages[storage].key); };
        heap_sort(order, {}, key_of);
        std::uint64_t at = pickle_->taken();
        for (const PickleValue& key : keys) {
            require<DataError>(key.kind == PickleKind::text, path_, " is damaged: a storage's key is no text");
            const auto [first, last] = std::ranges::equal_range(order, text_of(key), {}, key_of);
            if (first == last)
                throw DataError(text(path_, " is damaged: no tensor has its storage ", shown(text_of(key))));
            const std::uint64_t element = torch_types[tables_.storages[*first].type].bytes;
            for (auto each = first; each != last; ++each) {
                const bool same = torch_types[tables_.storages[*each].type].bytes == element;
                if (same && places_[*each].begin == StoragePlace::absent) continue;
                throw DataError(text(path_, " is damaged: its storage ", shown(text_of(key)),
                                     same ? " is there twice" : " has two types"));
            }
            std::array<std::byte, 8> number{};
            file_.read(at, number);
            at += number.size();
            const auto count = little_endian<std::uint64_t>(number.data());
            std::uint64_t bytes = 0;
            const bool fits = !__builtin_mul_overflow(count, element, &bytes);
            if (!fits) bytes = ~std::uint64_t{0};
            file_.require_bytes(at, bytes);
            for (auto each = first; each != last; ++each) places_[*each] = {at, bytes};
            at += bytes;
        }
    }

    const FilePieces& file_;
    const std::string& path_;
    std::unique_ptr<FileFront> pickle_;
    PickleTables tables_;
    std::vector<StoragePlace> places_;
    PickleValue root_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
