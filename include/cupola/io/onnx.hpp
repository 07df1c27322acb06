// SPDX-License-Identifier: Apache-2.0
//
// Writes a trained network as an ONNX file (opset 17, IR version 8), which ONNX Runtime and other programs run: what
// the network computes in evaluation, with its parameters and running statistics in float.
//
//   write_onnx<Net>("model.onnx", training);                                              a training between two steps
//   write_onnx<Net>("model.onnx", read_checkpoint("model.safetensors", Net::layers));     or a checkpoint of one
//
// The file is complete or not there, and the same for the same weights. Its inputs have the names of the columns that
// the network reads, "input" for its Input; its outputs those of its Outputs, and "output" for a last value without a
// name. Their first extent, the batch, is the variable N. Weights have PyTorch's names and layouts, as in a checkpoint.
//
// Images are channels first in the file, ONNX's order, or last with OnnxLayout::nhwc. An output that was flattened from
// an image, without a layer that mixes the features, has the order of the layout too. Ids are int32 and bytes uint8.
//
// What a layer is in ONNX is a member of its own (layers/graph_operator.hpp), also of a user's; a layer without one is
// a compiler diagnostic. The component is cupola::onnx, which needs protozero.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/compile_time_message.hpp>
#include <cupola/core/error.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/onnx_forms.hpp>
#include <cupola/io/impl/onnx_graph.hpp>
#include <cupola/io/impl/onnx_message.hpp>
#include <cupola/net/finite.hpp>
#include <cupola/net/sequential.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// The order of the extents of images, samples of three extents, in the inputs and outputs of an ONNX file: channels
/// first, ONNX's own, or last, as in this library.
enum class OnnxLayout : std::uint8_t { nchw, nhwc };

struct OnnxOptions {
    OnnxLayout layout = OnnxLayout::nchw;
    /// If empty, the moving averages if the state has them, and otherwise the trained parameters.
    std::optional<Weights> weights{};
    /// The name of the graph.
    std::string name = "network";
    /// Keys, each given once, and their texts, for the program that reads the file: the names of classes, for example.
    /// A network with a constant `preprocessing` (models/image_preprocessing.hpp) adds its numbers.
    std::vector<std::pair<std::string, std::string>> metadata{};
};

namespace impl {

[[gnu::cold]] inline void write_onnx_file(const std::string& path, std::span<const LayerInfo> layers,
                                          std::span<const OnnxForm> forms, const TrainingState& state,
                                          const OnnxOptions& options) {
    for (std::size_t i = 0; i < options.metadata.size(); ++i) {
        const std::string& key = options.metadata[i].first;
        for (std::size_t k = 0; k < i; ++k)
            require(options.metadata[k].first != key, path, " is not written: its metadata have the key ", key,
                    " twice");
    }
    const StoredTensors stored = stored_tensors(layers);
    const OnnxGraph graph = OnnxGraphBuilder(layers, forms, stored, options.layout == OnnxLayout::nhwc).build();
    const OnnxMessage message(graph, options.name, options.metadata);
    constexpr std::uint64_t largest = std::numeric_limits<std::int32_t>::max();
    require(message.size() <= largest, path, " is not written: it would have ", ByteCount{message.size()},
            ", and an ONNX file has at most 2^31 - 1 bytes");

    const Weights weights = options.weights.value_or(state.averages.empty() ? Weights::trained : Weights::averages);
    require(weights == Weights::trained || !state.averages.empty(), path,
            " is not written: the state has no moving averages");
    const std::vector<float> parameters = parameters_in_layout(layers, state, weights == Weights::averages);
    require(static_cast<std::int64_t>(state.buffers.size()) == stored.buffer_elements, path,
            " is not written: the running statistics of the state have ", state.buffers.size(),
            " elements, and the network's have ", stored.buffer_elements);
    std::string found = non_finite_parameter(layers, parameters);
    if (found.empty()) found = invalid_buffer(layers, state.buffers);
    require(found.empty(), path, " is not written: the state's ", found);
    message.write(path, parameters, state.buffers);
}

/// The options with the metadata of the network's constant `preprocessing`, if it has one, but for keys that are given.
template <Network Net>
[[nodiscard]] OnnxOptions with_preprocessing(OnnxOptions options) {
    if constexpr (requires { Net::preprocessing.metadata(); }) {
        for (auto& entry : Net::preprocessing.metadata()) {
            const bool given =
                std::ranges::any_of(options.metadata, [&](const auto& each) { return each.first == entry.first; });
            if (!given) options.metadata.push_back(std::move(entry));
        }
    }
    return options;
}

}  // namespace impl

/// Writes the network with the weights of `state`, in the layout of Net or, with its `tensors`, that of one of which
/// other parameters are frozen. Throws InvalidArgument for a state of another network, for one that is not finite, for
/// moving averages that it does not have, for a file of more than 2 GB, for two of the network's inputs, outputs and
/// parameters of one name, and for a layer whose operators read a value or a parameter that the layer does not have;
/// and DataError where the file cannot be written.
///
/// `layers` are those of Net, or the same with other extents, where only a file says them: its number of classes, for
/// example.
template <Network Net>
void write_onnx(const std::string& path, std::span<const LayerInfo> layers, const TrainingState& state,
                const OnnxOptions& options = {}) {
    static_assert(static_assert_message<impl::onnx_diagnostic<Net>()>());
    require(layers.size() == Net::layers.size(), path, " is not written: ", layers.size(),
            " layers were given, and the network has ", Net::layers.size());
    if constexpr (Net::valid)
        impl::write_onnx_file(path, layers, impl::onnx_forms<Net>, state, impl::with_preprocessing<Net>(options));
}
template <Network Net>
void write_onnx(const std::string& path, const TrainingState& state, const OnnxOptions& options = {}) {
    write_onnx<Net>(path, Net::layers, state, options);
}
template <Network Net>
void write_onnx(const std::string& path, const Checkpoint& checkpoint, const OnnxOptions& options = {}) {
    write_onnx<Net>(path, checkpoint.state, options);
}
/// The same with the state of a training of Net.
template <Network Net, class Training>
    requires requires(Training& training) {
        { training.state() } -> std::same_as<TrainingState>;
    }
void write_onnx(const std::string& path, Training& training, const OnnxOptions& options = {}) {
    write_onnx<Net>(path, training.state(), options);
}

}}  // namespace cupola::CUPOLA_ABI
