// SPDX-License-Identifier: Apache-2.0
//
// Reads the tensors of a file of PyTorch's `torch.save`: a state dict as it was saved, in the zip format or in the one
// before torch 1.6, whatever its suffix is (.pth, .pt, .bin).
//
// The file holds a dictionary of names and tensors, or one with such a dictionary under `state_dict`, `model` or
// `model_state_dict`. Numbers, texts, lists and dictionaries among the tensors are left out. Nothing of Python is run:
// an object of another class is left out beside the dictionary of tensors, as the optimiser or the arguments of a
// program, and refused by name among the tensors or instead of them. Views are read with their strides. The tensors'
// bytes stay in the file and are read in pieces; what else is allocated is bounded by the size of the pickle. A file
// that is damaged, compressed, encrypted, big-endian, a TorchScript program or a tar archive throws DataError.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/file_pieces.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/pickle_values.hpp>
#include <cupola/io/impl/safetensors_header.hpp>
#include <cupola/io/impl/strided_view.hpp>
#include <cupola/io/impl/torch_records.hpp>
#include <cupola/io/impl/whole_file.hpp>
#include <cupola/io/tensor_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class TorchFile : public TensorFile {
public:
    static constexpr std::size_t max_tensors = impl::max_safetensors;

    explicit TorchFile(const std::string& path) : TensorFile(path), file_(path) { read(); }
    /// From bytes in memory; `path` is for messages.
    TorchFile(std::string path, impl::FileBytes file) : TensorFile(path), file_(std::move(path), std::move(file)) {
        read();
    }
    TorchFile(const TorchFile&) = delete;
    TorchFile& operator=(const TorchFile&) = delete;

    /// Whether a file that begins with these bytes, the first 512, is read here.
    [[nodiscard]] static bool has_format(std::string_view bytes) {
        using namespace std::string_view_literals;
        return !impl::begins_safetensors(bytes) &&
               (bytes.starts_with("PK\x03\x04"sv) || bytes.starts_with("PK\x05\x06"sv) || is_tar(bytes) ||
                (bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5));
    }

private:
    void read_some(const SafeTensor& tensor, std::uint64_t first, std::span<float> to) const override {
        const auto index = static_cast<std::size_t>(find(tensor.name) - tensors_.data());
        impl::read_view(file_, views_[index], first, to);
    }

    /// A tensor of the dictionary, by its number in the pickle's table.
    struct Named {
        std::string_view name;
        std::size_t tensor = 0;
    };

    /// The keys of dictionaries that are looked into.
    static constexpr std::array<std::string_view, 3> inner_keys{"state_dict", "model", "model_state_dict"};

    [[nodiscard]] static bool is_tar(std::string_view bytes) {
        return bytes.size() >= 262 && bytes.substr(257, 5) == "ustar";
    }

    [[gnu::cold]] void read() {
        std::vector<std::byte> begin(std::min<std::uint64_t>(file_.size(), 512));
        file_.read(0, begin);
        const std::string_view first(reinterpret_cast<const char*>(begin.data()), begin.size());
        require<DataError>(
            !is_tar(first), path_,
            " is a tar archive, as torch.save wrote before PyTorch 0.2, which cannot be read: in Python, "
            "torch.save(torch.load(path, weights_only=False), new_path) writes it anew");
        if (!has_format(first)) {
            std::string bytes;
            for (const char c : first.substr(0, 8)) {
                const auto byte = static_cast<unsigned char>(c);
                for (const int digit : {byte >> 4, byte & 15}) bytes += "0123456789abcdef"[digit];
                bytes += ' ';
            }
            if (!bytes.empty()) bytes.pop_back();
            throw DataError(text(path_, " is neither a zip archive nor a pickle, as torch.save writes them: it ",
                                 bytes.empty() ? "has no bytes" : "begins with the bytes ", bytes));
        }
        const impl::TorchRecords& records = records_.emplace(file_, first[0] == 'P');
        make_tensors(dictionary_in(records.root()));
        find_wrapper();
    }

    [[nodiscard]] std::string class_of(const impl::PickleValue& object) const {
        return impl::shown(records_->tables().classes[object.index()]);
    }

    /// The dictionary with the tensors: the file's, or that under one of a few keys in it, also in turn.
    [[nodiscard]] impl::PickleValue dictionary_in(impl::PickleValue root) const {
        using impl::PickleKind;
        if (root.kind == PickleKind::object)
            throw DataError(text(path_, " holds an object of ", class_of(root),
                                 ", and a dictionary of names and tensors is read: in Python, "
                                 "torch.save(network.state_dict(), path) writes that of a network"));
        require<DataError>(root.kind == PickleKind::dictionary, path_, " holds ", impl::kind_name(root.kind),
                           ", and a dictionary of names and tensors is read, such as a state dict");
        constexpr int deepest = 3;
        for (int depth = 0; depth < deepest; ++depth) {
            const impl::PickleValue* inner = nullptr;
            std::string_view key;
            const bool has_tensors = has_any(root, PickleKind::tensor);
            const auto filled = std::ranges::count_if(inner_keys, [&](std::string_view each) {
                const impl::PickleValue* const value = records_->value_of(root, each);
                return value != nullptr && value->kind == PickleKind::dictionary && !records_->items(*value).empty();
            });
            for (const std::string_view each : inner_keys) {
                const impl::PickleValue* const value = records_->value_of(root, each);
                if (value == nullptr || value->kind != PickleKind::dictionary || records_->items(*value).empty())
                    continue;
                if ((has_tensors || filled > 1) && !may_have_tensors(*value, has_tensors)) continue;
                require<DataError>(
                    inner == nullptr, path_, " has dictionaries under both ", key, " and ", each,
                    ", and which of them is meant is not known; in Python, torch.save(torch.load(path)[\"", each,
                    "\"], new_path) writes one alone");
                inner = value;
                key = each;
            }
            if (inner == nullptr) break;
            root = *inner;
        }
        return root;
    }

    /// Whether a name in a dictionary has a value of this kind.
    [[nodiscard]] bool has_any(const impl::PickleValue& dictionary, impl::PickleKind kind) const {
        const std::span<const impl::PickleValue> all = records_->items(dictionary);
        for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
            if (all[i].kind == impl::PickleKind::text && all[i + 1].kind == kind) return true;
        }
        return false;
    }
    /// Whether there are tensors in a dictionary, dictionaries that are looked into, or objects in place of tensors; no
    /// object is in one of settings beside tensors.
    [[nodiscard]] bool may_have_tensors(const impl::PickleValue& dictionary, bool beside_tensors) const {
        using impl::PickleKind;
        if (has_any(dictionary, PickleKind::tensor)) return true;
        if (!beside_tensors && has_any(dictionary, PickleKind::object)) return true;
        return std::ranges::any_of(inner_keys, [&](std::string_view each) {
            const impl::PickleValue* const value = records_->value_of(dictionary, each);
            return value != nullptr && value->kind == PickleKind::dictionary;
        });
    }

    /// A value that is no tensor, where tensors are looked for.
    [[nodiscard]] std::string described(const impl::PickleValue& key, const impl::PickleValue& value) const {
        const bool empty = value.kind == impl::PickleKind::dictionary && records_->items(value).empty();
        return text(impl::shown(records_->text_of(key)), empty ? " (empty)" : "",
                    value.kind == impl::PickleKind::object ? text(" (an object of ", class_of(value), ')') : "");
    }
    /// The first key of a dictionary in this one that has tensors.
    [[nodiscard]] std::string key_of_tensors(std::span<const impl::PickleValue> all) const {
        using impl::PickleKind;
        // One dictionary may have many keys.
        std::vector<bool> seen(records_->tables().lists.size());
        for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
            if (all[i].kind != PickleKind::text || all[i + 1].kind != PickleKind::dictionary) continue;
            if (seen[all[i + 1].index()]) continue;
            seen[all[i + 1].index()] = true;
            const std::span<const impl::PickleValue> inner = records_->items(all[i + 1]);
            for (std::size_t j = 0; j + 1 < inner.size(); j += 2) {
                if (inner[j].kind == PickleKind::text && inner[j + 1].kind == PickleKind::tensor)
                    return impl::shown(records_->text_of(all[i]));
            }
        }
        return {};
    }

    void make_tensors(const impl::PickleValue& dictionary) {
        using impl::PickleKind;
        std::vector<Named> named;
        std::string others;
        const impl::PickleValue* object = nullptr;
        const std::span<const impl::PickleValue> all = records_->items(dictionary);
        for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
            if (all[i].kind != PickleKind::text) continue;
            if (all[i + 1].kind == PickleKind::tensor) {
                require<DataError>(named.size() < max_tensors, path_, " has more than ", max_tensors, " tensors");
                named.push_back({records_->text_of(all[i]), all[i + 1].index()});
            } else if (all[i + 1].kind == PickleKind::object && object == nullptr) {
                object = &all[i];
            }
            if (all[i + 1].kind != PickleKind::tensor && others.size() < 200)
                others += text(others.empty() ? "" : ", ", described(all[i], all[i + 1]));
        }
        if (named.empty() && !all.empty()) {
            const std::string key = key_of_tensors(all);
            throw DataError(text(path_, " has no tensors by name: its names are ", others.empty() ? "numbers" : others,
                                 "; state_dict, model and model_state_dict are looked into",
                                 key.empty() ? ""
                                             : text(", and in Python torch.save(torch.load(path)[\"", key,
                                                    "\"], new_path) writes another one alone")));
        }
        if (object != nullptr)
            throw DataError(text(path_, ": ", impl::shown(records_->text_of(object[0])), " is an object of ",
                                 class_of(object[1]),
                                 ", and among tensors only numbers, texts, lists and dictionaries are left out"));
        heap_sort(named, {}, &Named::name);
        const auto twice = std::ranges::adjacent_find(named, {}, &Named::name);
        if (twice != named.end())
            throw DataError(text(path_, " is damaged: it has two tensors named ", impl::shown(twice->name)));
        tensors_.reserve(named.size());
        views_.reserve(named.size());
        // The texts of the extents lie in one string, which must not move.
        std::vector<std::size_t> ends;
        for (const Named& each : named) {
            const impl::PickleTensor& tensor = records_->tables().tensors[each.tensor];
            views_.push_back(view_of(each.name, tensor));
            const std::size_t begin = extents_.size();
            for (const std::uint64_t extent : views_.back().extents)
                extents_ += text(extents_.size() == begin ? "" : ",", extent);
            ends.push_back(extents_.size());
        }
        for (std::size_t i = 0; i < named.size(); ++i) {
            const std::size_t begin = i == 0 ? 0 : ends[i - 1];
            const impl::StridedView& view = views_[i];
            tensors_.push_back(
                {named[i].name, impl::torch_types[view.type].name,
                 std::string_view(extents_).substr(begin, ends[i] - begin), view.begin,
                 view.begin + impl::view_span(impl::ordered_indices(view)) * impl::torch_types[view.type].bytes});
        }
    }

    /// Checks the tensor against its storage, and that against the file.
    [[nodiscard, gnu::cold]] impl::StridedView view_of(std::string_view name, const impl::PickleTensor& tensor) const {
        const std::string what = text(path_, ": ", impl::shown(name));
        require<DataError>(tensor.storage != impl::PickleTensor::no_storage, what, " is a tensor without a storage");
        const impl::PickleStorage& storage = records_->tables().storages[tensor.storage];
        const impl::StoragePlace& place = records_->place(tensor.storage);
        const std::uint64_t stored = impl::torch_types[storage.type].bytes;
        require<DataError>(!tensor.negated, what,
                           " is a view of numbers with the other sign, which is not read; in Python, resolve_neg() of "
                           "it has them as they are");
        if (place.begin == impl::StoragePlace::absent)
            throw DataError(text(what, " has the storage ", impl::shown(records_->text_of(storage.key)),
                                 ", which the file does not have"));
        require<DataError>(storage.count <= place.bytes / stored, what, " has a storage of ", storage.count,
                           " elements of ", stored, " bytes, and the file has ", place.bytes, " bytes of it");
        impl::StridedView view{.type = tensor.type};
        const std::span<const impl::PickleValue> extents = records_->tables().lists[tensor.extents],
                                                 strides = records_->tables().lists[tensor.strides];
        require<DataError>(extents.size() == strides.size() && extents.size() <= impl::max_view_rank, what, " has ",
                           extents.size(), " extents and ", strides.size(), " strides; the most are ",
                           impl::max_view_rank);
        for (const auto& [values, to] : {std::pair(extents, &view.extents), std::pair(strides, &view.strides)}) {
            to->reserve(values.size());
            for (const impl::PickleValue& value : values) {
                require<DataError>(value.kind == impl::PickleKind::integer && value.number >= 0, what,
                                   " has an extent or a stride that is not a natural number");
                to->push_back(static_cast<std::uint64_t>(value.number));
            }
        }
        const std::uint64_t bytes = impl::torch_types[view.type].bytes;
        // Only an untyped storage has other elements than its tensors, and its elements are bytes.
        const std::uint64_t available = (storage.count - storage.offset) * stored / bytes;
        impl::check_view(what, view, tensor.offset, available);
        if (std::ranges::find(view.extents, std::uint64_t{0}) == view.extents.end())
            view.begin = place.begin + storage.offset * stored + tensor.offset * bytes;
        return view;
    }

    void find_wrapper() {
        for (bool found = !tensors_.empty(); found;) {
            found = false;
            for (const std::string_view each : {"module.", "_orig_mod."}) {
                const std::string longer = text(wrapper_, each);
                const bool all = std::ranges::all_of(
                    tensors_, [&](const SafeTensor& tensor) { return tensor.name.starts_with(longer); });
                if (!all) continue;
                wrapper_ = longer;
                found = true;
            }
        }
    }

    impl::FilePieces file_;
    std::optional<impl::TorchRecords> records_;
    std::string extents_;
    std::vector<impl::StridedView> views_;
};

}}  // namespace cupola::CUPOLA_ABI
