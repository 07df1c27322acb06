// SPDX-License-Identifier: Apache-2.0
//
// The place of each tensor of a network in its arena, and in a file with PyTorch's layouts.
//
// The arena is channels last, PyTorch is channels first. A parameter says what that means for it (FileLayout of
// layers/parameters.hpp), and all that it can say is one transposition: blocks of [places][channels] here are blocks of
// [channels][places] there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/extents.hpp>
#include <cupola/layers/parameters.hpp>
#include <cupola/net/table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct StoredTensor {
    std::string name;
    /// In the file, and in the network.
    Shape shape{}, own_shape{};
    /// In the arena, in elements.
    std::int64_t offset = 0;
    std::int64_t blocks = 1, places = 1, channels = 1;

    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(blocks * places * channels); }
};

/// Whether a layer lists the features of an image in another order here than in files: it states that it does.
[[nodiscard]] inline bool flattens_image(const LayerInfo& layer) {
    return layer.traits.flattens && layer.input.rank == 3 && layer.output.rank == 1;
}

/// One parameter of a layer whose input was flattened from `unflattened`, if that has extents.
[[nodiscard, gnu::cold]] inline StoredTensor stored_tensor(std::string name, const Parameter& parameter,
                                                           std::int64_t offset, const Shape& unflattened) {
    const Shape& shape = parameter.shape;
    StoredTensor tensor{std::move(name), shape, shape, offset, shape.size(), 1, 1};
    if (parameter.layout == FileLayout::input_features && unflattened.rank == 3) {
        tensor.blocks = shape.size() / unflattened.size();
        tensor.places = unflattened.height() * unflattened.width();
        tensor.channels = unflattened.channels();
    } else if (parameter.layout == FileLayout::channels_first || parameter.layout == FileLayout::channels_second) {
        // The last axis becomes the one at this place.
        const std::size_t place = parameter.layout == FileLayout::channels_first ? 0 : 1;
        const auto begin = tensor.shape.extents.begin(), end = begin + static_cast<std::ptrdiff_t>(shape.rank);
        std::rotate(begin + static_cast<std::ptrdiff_t>(place), end - 1, end);
        tensor.channels = shape.channels();
        tensor.blocks = place == 0 ? 1 : shape[0];
        tensor.places = shape.size() / (tensor.blocks * tensor.channels);
    }
    return tensor;
}

/// Parameters and, with `buffers`, the running statistics.
struct StoredTensors {
    std::vector<StoredTensor> parameters, buffers;
    /// The parameters that are trained: those of an optimiser's state and of moving averages.
    std::vector<StoredTensor> trained;
    /// Elements of the arenas.
    std::int64_t parameter_elements = 0, trained_elements = 0, buffer_elements = 0;
};

[[nodiscard, gnu::cold]] inline StoredTensors stored_tensors(std::span<const LayerInfo> layers) {
    StoredTensors tensors;
    // The extents of each value (see LayerInfo::reads) before a Flatten, as long as every feature has kept its place
    // since: a layer whose output has the extents of its input leaves the features where they are, unless it has a
    // matrix.
    std::vector<Shape> unflattened(layers.size() + 1);
    for (std::size_t r = 0; r < layers.size(); ++r) {
        const LayerInfo& layer = layers[r];
        // A table of ids has no order of features.
        const Shape order = layer.reads_column.empty() ? unflattened[layer.reads] : Shape{};
        bool mixes = layer.output != layer.input;
        for (std::size_t p = 0; p < layer.parameters.count; ++p) {
            const Parameter& parameter = layer.parameters.list[p];
            tensors.parameters.push_back(
                stored_tensor(parameter_name(layers, r, p), parameter, layer.offsets[p], order));
            if (!layer.frozen[p]) tensors.trained.push_back(tensors.parameters.back());
            mixes = mixes || parameter.shape.rank > 1;
        }
        for (std::size_t b = 0; b < layer.buffers.count; ++b) {
            tensors.buffers.push_back(
                stored_tensor(buffer_name(layers, r, b), layer.buffers.list[b], layer.buffer_offsets[b], order));
        }
        if (flattens_image(layer)) {
            unflattened[r + 1] = layer.input;
        } else if (!mixes) {
            unflattened[r + 1] = order;
        }
    }
    tensors.parameter_elements = arena_elements(layers);
    tensors.trained_elements = trained_elements(layers);
    tensors.buffer_elements = buffer_elements(layers);
    return tensors;
}

/// The tensor as it is in the file; `to` has its size.
inline void to_file(const StoredTensor& tensor, const float* arena, float* to) {
    const float* from = arena + tensor.offset;
    for (std::int64_t block = 0; block < tensor.blocks; ++block) {
        for (std::int64_t channel = 0; channel < tensor.channels; ++channel) {
            for (std::int64_t place = 0; place < tensor.places; ++place)
                *to++ = from[place * tensor.channels + channel];
        }
        from += tensor.places * tensor.channels;
    }
}

/// The inverse of to_file() for a part of the tensor: its elements in the file from the number `first` on.
inline void from_file(const StoredTensor& tensor, std::int64_t first, std::span<const float> from, float* arena) {
    const std::int64_t block_size = tensor.places * tensor.channels;
    std::int64_t channel = first % block_size / tensor.places, place = first % tensor.places;
    float* to = arena + tensor.offset + first / block_size * block_size;
    for (const float value : from) {
        to[place * tensor.channels + channel] = value;
        if (++place < tensor.places) continue;
        place = 0;
        if (++channel < tensor.channels) continue;
        channel = 0;
        to += block_size;
    }
}

/// Where an element of the tensor in the file is among the tensor's in the arena.
[[nodiscard]] inline std::int64_t place_in_arena(const StoredTensor& tensor, std::int64_t in_file) {
    if (tensor.places == 1) return in_file;
    const std::int64_t block_size = tensor.places * tensor.channels, in_block = in_file % block_size;
    return in_file - in_block + in_block % tensor.places * tensor.channels + in_block / tensor.places;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
