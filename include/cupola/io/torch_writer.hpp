// SPDX-License-Identifier: Apache-2.0
//
// Writes the parameters and running statistics of a network as a file that PyTorch's `torch.load` reads, also with
// `weights_only=True`, which is its default: a state dict of float32 tensors, under PyTorch's names and in its layouts.
//
//   write_torch_file("weights.pth", Net::layers, training.state());
//
// The file has the zip format of torch.save and is complete or not there. It has no checksum beside those of its
// entries, and neither the step nor the optimiser's state: io/checkpoint.hpp writes all of a training.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/zip_writer.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// The pickle, of protocol 2, of an OrderedDict of tensors whose storages are "0", "1", ...
class StateDictPickle {
public:
    void add(std::string_view name, const Shape& shape) {
        text_of(name);
        pickle_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
        text_of("storage");
        pickle_ += "ctorch\nFloatStorage\n";
        text_of(text(count_++));
        text_of("cpu");
        integer(shape.size());
        pickle_ += "tQK";
        pickle_ += '\0';
        pickle_ += '(';
        for (std::size_t i = 0; i < shape.rank; ++i) integer(shape[i]);
        pickle_ += "t(";
        for (std::size_t i = 0; i < shape.rank; ++i) {
            std::int64_t stride = 1;
            for (std::size_t inner = i + 1; inner < shape.rank; ++inner) stride *= shape[inner];
            integer(stride);
        }
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
/// the state is of another network or not finite, and DataError where the file cannot be written.
inline void write_torch_file(const std::string& path, std::span<const LayerInfo> layers, const TrainingState& state) {
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

    impl::StateDictPickle pickle;
    std::size_t largest = 0;
    for (const auto* const part : {&tensors.parameters, &tensors.buffers}) {
        for (const impl::StoredTensor& tensor : *part) {
            pickle.add(tensor.name, tensor.shape);
            largest = std::max(largest, tensor.size());
        }
    }
    impl::ZipWriter file(path);
    file.add("archive/data.pkl", pickle.finished());
    file.add("archive/byteorder", "little");
    std::vector<float> piece(largest);
    std::size_t number = 0;
    for (const bool buffers : {false, true}) {
        const std::vector<float>& arena = buffers ? state.buffers : state.parameters;
        for (const impl::StoredTensor& tensor : buffers ? tensors.buffers : tensors.parameters) {
            impl::to_file(tensor, arena.data(), piece.data());
            file.begin(text("archive/data/", number++), tensor.size() * sizeof(float));
            file.write(std::as_bytes(std::span(piece).first(tensor.size())));
            file.end();
        }
    }
    file.add("archive/version", "3\n");
    file.commit();
}

}}  // namespace cupola::CUPOLA_ABI
