// SPDX-License-Identifier: Apache-2.0
//
// A training's state as a safetensors file that PyTorch's `load_file` reads as a state dict, and back.
//
//   conv1.weight, bn1.running_mean         parameters and running statistics, under PyTorch's names and in its layouts
//   ema.conv1.weight                       the parameters' moving averages, where they are kept; frozen ones have none
//   optimizer.exp_avg.conv1.weight         the optimiser's state
//   replica.0.conv1.weight                 where replicas agree on a centre (parallel/kinds/), which then has the plain
//                                          names: the same of every replica
//   outer.momentum_buffer.conv1.weight     the state of the optimiser that moves the centre
//   __metadata__                           cupola.version, cupola.step, cupola.optimizer_states;
//                                          cupola.centre_replicas, cupola.outer_states, cupola.samples_since and
//                                          cupola.rule where there is a centre, cupola.frozen where parameters are,
//                                          cupola.inputs of ids and bytes, cupola.loss_scale where it is dynamic,
//                                          cupola.network (what the network computes: net/network_description.hpp), the
//                                          checksum and the run's own texts (io/checkpoint_info.hpp)
//
// A file without `cupola.version` is one that PyTorch saved: step 0, only parameters and running statistics. So are a
// file of torch.save and an index of several files (io/open_tensor_file.hpp), which are told by their first bytes and
// not by their names. A file that is damaged, of another version or of another network is a DataError that names the
// file and the first difference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/checkpoint_metadata.hpp>
#include <cupola/io/impl/checkpoint_tensors.hpp>
#include <cupola/io/impl/file_parts.hpp>
#include <cupola/io/impl/load_plan.hpp>
#include <cupola/io/open_tensor_file.hpp>
#include <cupola/io/safetensors_writer.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/net/name_table.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/training_state.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// Writes the state of a training of the network `Net::layers`. The file is written completely or not at all. Throws
/// InvalidArgument for a state that is not finite, which could not be read again, and for one of another network or
/// with other frozen parameters.
[[gnu::cold]] inline void write_checkpoint(const std::string& path, std::span<const LayerInfo> layers,
                                           const Checkpoint& checkpoint) {
    const TrainingState& state = checkpoint.state;
    if (!state.tensors.empty()) impl::require_tensors_of(layers, state.tensors);
    const impl::StoredTensors tensors = impl::stored_tensors(layers);
    for (const ReplicaState& each : state.replicas) {
        const bool same_states = std::ranges::equal(each.optimizer, state.replicas.front().optimizer, {},
                                                    &OptimizerState::name, &OptimizerState::name);
        require(same_states && each.averages.empty() && state.optimizer.empty(), path,
                ": the replicas of the state have different arenas");
    }
    const auto arenas = impl::stored_arenas(tensors, !state.averages.empty(), state);
    std::vector<TensorHeader> headers;
    std::size_t largest = 0;
    for (const impl::StoredArena& arena : arenas) {
        const std::vector<float>& values = impl::arena_of(state, arena);
        require(static_cast<std::int64_t>(values.size()) == arena.elements, path, ": an arena of the state has ",
                values.size(), " elements, and the network's has ", arena.elements);
    }
    if (const std::string found = non_finite_part(layers, state); !found.empty())
        throw InvalidArgument(text(path, " is not written: the state's ", found));
    for (const impl::StoredArena& arena : arenas) {
        for (const impl::StoredTensor& tensor : arena.tensors) {
            const Shape& shape = tensor.shape;
            headers.push_back(
                {arena.prefix + tensor.name, "F32", {shape.extents.begin(), shape.extents.begin() + shape.rank}});
            largest = std::max(largest, tensor.size());
        }
    }
    SafetensorsWriter file(path, headers, impl::metadata_of(path, checkpoint, layers));
    std::vector<float> piece(largest);
    for (const impl::StoredArena& arena : arenas) {
        for (const impl::StoredTensor& tensor : arena.tensors) {
            impl::to_file(tensor, impl::arena_of(state, arena).data(), piece.data());
            file.write(std::as_bytes(std::span(piece).first(tensor.size())));
        }
    }
    file.commit();
}

/// Which parameters the training that wrote a checkpoint may have frozen (net/frozen.hpp): those that the network has
/// frozen, as a training needs that continues from it; or any, as prediction and evaluation allow.
enum class FrozenInFile : std::uint8_t { as_in_network, any };

struct ReadOptions {
    FrozenInFile frozen = FrozenInFile::as_in_network;
    /// Whether the network is compared by its description; with FrozenInFile::any, by the part that matters in
    /// prediction.
    NetworkInFile network = NetworkInFile::equal;
    /// The beginning of the names in the file, such as "module." where PyTorch's DataParallel saved it, or "_orig_mod."
    /// of torch.compile. In a file of torch.save these two are found without it.
    std::string file_prefix{};
    /// Patterns (core/glob.hpp) of the names of tensors in the file that the network does not have and that are left
    /// out.
    std::vector<std::string> ignored{};
    /// What the parameters and running statistics are in the file, where it is not one of Cupola's names and layouts.
    NameTable names{};
};

/// Reads a checkpoint of the network `Net::layers`; by its path also a file of torch.save or an index. Throws DataError
/// also where a number in it is not finite, or a running variance is below 0, and for an entry of the table of names
/// that matches nothing in the file; InvalidArgument for a table without a meaning. With FrozenInFile::any the arenas
/// have the layout of the training that wrote them, whose frozen parameters `state.tensors` marks;
/// `parameters_in_layout` has the parameters in that of `layers`.
[[nodiscard, gnu::cold]] inline Checkpoint read_checkpoint(const TensorFile& file, std::span<const LayerInfo> layers,
                                                           const ReadOptions& options = {}) {
    Checkpoint checkpoint;
    impl::read_metadata(file, checkpoint);
    const bool in_prediction = options.frozen == FrozenInFile::any;
    const std::span<const LayerInfo> own_layers = layers;
    if (checkpoint.resumable) impl::check_inputs(file, layers);
    std::vector<LayerInfo> layers_of_file;
    if (checkpoint.resumable && in_prediction) {
        layers_of_file = impl::frozen_as_in(file, layers);
        layers = layers_of_file;
    } else if (checkpoint.resumable) {
        impl::check_frozen(file, layers);
    }
    checkpoint.state.tensors = state_tensors(layers);
    const impl::StoredTensors tensors = impl::stored_tensors(layers);
    if (!tensors.parameters.empty()) impl::require_tensors(file);
    const std::vector<impl::FilePart> parts = impl::file_parts(tensors, options.names);
    const std::string prefix = impl::prefix_in(file, options.file_prefix, parts);
    const auto trained = std::ranges::find_if(parts, [&](const impl::FilePart& part) {
        return !part.buffer && part.tensor->offset < tensors.trained_elements;
    });
    const bool averages = checkpoint.resumable && trained != parts.end() &&
                          file.find(text(impl::averages_prefix, prefix, trained->name)) != nullptr;
    const bool has_centre = !checkpoint.state.replicas.empty();
    if (has_centre) {
        const std::size_t replicas = checkpoint.state.replicas.size(),
                          tensors_each =
                              tensors.parameters.size() + tensors.trained.size() * checkpoint.state.optimizer.size();
        require<DataError>(replicas * tensors_each + tensors.parameters.size() <= file.tensors().size(), file.path(),
                           " declares ", replicas, " replicas and has ", file.tensors().size(), " tensors, not ",
                           tensors_each, " per replica");
        for (ReplicaState& each : checkpoint.state.replicas) each.optimizer = checkpoint.state.optimizer;
        checkpoint.state.optimizer.clear();
    }
    auto arenas = impl::stored_arenas(tensors, averages, checkpoint.state);
    for (impl::StoredArena& arena : arenas) arena.prefix += prefix;
    const std::string all_names = "*";
    impl::require_entries(file, options.names, parts, std::span(&all_names, 1), prefix);
    for (const impl::StoredArena& arena : arenas) impl::check_tensors(file, arena, parts);
    const auto is_ignored = [&](std::string_view name) {
        return impl::matches_any(options.ignored, name) || impl::is_ignored(options.names, name, prefix);
    };
    impl::check_no_more(file, arenas, parts, is_ignored, !checkpoint.resumable);
    // Checked after the tensors, because their names and extents tell more.
    if (options.network == NetworkInFile::equal)
        impl::require_network(file.path(), checkpoint.network, own_layers, in_prediction);
    impl::TensorPieces pieces(file);
    for (const impl::StoredArena& arena : arenas) {
        std::vector<float>& values = impl::arena_of(checkpoint.state, arena);
        values.assign(static_cast<std::size_t>(arena.elements), 0.0F);
        for (const impl::FilePart& part : parts) {
            if (!arena.has(part)) continue;
            pieces.for_each(*file.find(arena.prefix + part.name), [&](std::int64_t first, auto piece) {
                impl::part_from_file(part, first, piece, values.data());
            });
        }
    }
    if (const std::string found = non_finite_part(layers, checkpoint.state); !found.empty())
        throw DataError(text(file.path(), " cannot be used: its ", found));
    checkpoint.state.file = file.path();
    return checkpoint;
}

[[nodiscard]] inline Checkpoint read_checkpoint(const std::string& path, std::span<const LayerInfo> layers,
                                                const ReadOptions& options = {}) {
    return read_checkpoint(*open_tensor_file(path), layers, options);
}

[[nodiscard]] inline Checkpoint read_checkpoint(const TensorFile& file, std::span<const LayerInfo> layers,
                                                FrozenInFile frozen) {
    return read_checkpoint(file, layers, ReadOptions{.frozen = frozen});
}
[[nodiscard]] inline Checkpoint read_checkpoint(const std::string& path, std::span<const LayerInfo> layers,
                                                FrozenInFile frozen) {
    return read_checkpoint(path, layers, ReadOptions{.frozen = frozen});
}

}}  // namespace cupola::CUPOLA_ABI
