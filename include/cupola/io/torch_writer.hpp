// SPDX-License-Identifier: Apache-2.0
//
// Writes the parameters and running statistics of a network as a file that PyTorch's `torch.load` reads, also with
// `weights_only=True`, which is its default: a state dict of float32 tensors, under PyTorch's names and in its layouts.
//
//   write_torch_file("weights.pth", Net::layers, training.state());
//
// A table of names (net/name_table.hpp) gives the state dict the names and layouts of another toolkit.
//
// The file has the zip format of torch.save and is complete or not there. It has no checksum beside those of its
// entries, and neither the step nor the optimiser's state: io/checkpoint.hpp writes all of a training.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/file_parts.hpp>
#include <cupola/io/impl/zip_writer.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/net/name_table.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The pickle, of protocol 2, of an OrderedDict of tensors whose storages are "0", "1", ...
class StateDictPickle {
public:
    void add(std::string_view name, std::span<const std::int64_t> extents) {
        std::int64_t size = 1;
        for (const std::int64_t extent : extents) size *= extent;
        text_of(name);
        pickle_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
        text_of("storage");
        pickle_ += "ctorch\nFloatStorage\n";
        text_of(text(count_++));
        text_of("cpu");
        integer(size);
        pickle_ += "tQK";
        pickle_ += '\0';
        pickle_ += '(';
        for (const std::int64_t extent : extents) integer(extent);
        pickle_ += "t(";
        for (const std::int64_t extent : extents) integer(size /= extent);
        // It needs no gradient, and has no hooks.
        pickle_ += "t\x89";
        pickle_ += "ccollections\nOrderedDict\n)RtR";
    }
    [[nodiscard]] std::string finished() const { return pickle_ + "u."; }

private:
    void text_of(std::string_view value) {
        pickle_ += 'X';
        const auto length = static_cast<std::uint32_t>(value.size());
        pickle_.append(reinterpret_cast<const char*>(&length), sizeof length);
        pickle_ += value;
    }
    void integer(std::int64_t value) {
        const bool is_short = value <= std::numeric_limits<std::int32_t>::max();
        pickle_ += is_short ? "J" : "\x8A\x08";
        pickle_.append(reinterpret_cast<const char*>(&value), is_short ? 4 : 8);
    }

    std::string pickle_ =
        "\x80\x02"
        "ccollections\nOrderedDict\n)R(";
    std::size_t count_ = 0;
};

}  // namespace impl

/// Writes the parameters and running statistics in `state`, of the network `Net::layers`. Throws InvalidArgument where
/// the state is of another network or not finite, for a table of names without a meaning or with one name for two
/// tensors, and DataError where the file cannot be written.
inline void write_torch_file(const std::string& path, std::span<const LayerInfo> layers, const TrainingState& state,
                             const NameTable& names = {}) {
    if (!state.tensors.empty()) impl::require_tensors_of(layers, state.tensors);
    const impl::StoredTensors tensors = impl::stored_tensors(layers);
    const auto require_size = [&](const char* what, const std::vector<float>& arena, std::int64_t elements) {
        require(static_cast<std::int64_t>(arena.size()) == elements, path, ": the ", what, " of the state have ",
                arena.size(), " elements, and the network's have ", elements);
    };
    require_size("parameters", state.parameters, tensors.parameter_elements);
    require_size("running statistics", state.buffers, tensors.buffer_elements);
    std::string found = non_finite_parameter(layers, state.parameters);
    if (found.empty()) found = invalid_buffer(layers, state.buffers);
    if (!found.empty()) throw InvalidArgument(text(path, " is not written: the state's ", found));

    const std::vector<impl::FilePart> parts = impl::file_parts(tensors, names);
    impl::StateDictPickle pickle;
    std::map<std::string_view, std::string_view> tensor_of;
    std::size_t largest = 0;
    for (const impl::FilePart& part : parts) {
        const auto [other, is_new] = tensor_of.emplace(part.name, part.tensor->name);
        require(is_new, path, " is not written: ", part.tensor->name, " and ", other->second, " would both be ",
                part.name);
        pickle.add(part.name, part.extents);
        largest = std::max(largest, part.tensor->size());
    }
    impl::ZipWriter file(path);
    file.add("archive/data.pkl", pickle.finished());
    file.add("archive/byteorder", "little");
    std::vector<float> stored(largest), own;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const impl::FilePart& part = parts[i];
        if (i == 0 || part.tensor != parts[i - 1].tensor)
            impl::to_file(*part.tensor, (part.buffer ? state.buffers : state.parameters).data(), stored.data());
        const std::span<const float> values = impl::part_to_file(part, stored, own);
        file.begin(text("archive/data/", i), values.size() * sizeof(float));
        file.write(std::as_bytes(values));
        file.end();
    }
    file.add("archive/version", "3\n");
    file.commit();
}

}}  // namespace cupola::CUPOLA_ABI
