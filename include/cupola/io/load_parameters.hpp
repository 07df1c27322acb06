// SPDX-License-Identifier: Apache-2.0
//
// Loads a part of a network's parameters and running statistics from a safetensors file, a checkpoint of Cupola, a file
// of torch.save or an index of several such files (io/open_tensor_file.hpp), by patterns of their names
// (core/glob.hpp), and reports what was loaded and what was not:
//
//   const LoadReport report = load_parameters(training, "pretrained.safetensors", {.patterns = {"body.*"}});
//   std::puts(to_string(report).c_str());
//
// A file of another toolkit is read by a table of its names and layouts, `.names` (net/name_table.hpp).
//
// The network may differ from the file's: what the file lacks, or has with other extents, keeps its values. Use it
// before the first step: the step and the optimiser's state stay as they are. `restore` of a whole checkpoint continues
// a training.
//
// The file is read twice, first to check all of it and then to copy it, 64 MB at a time; the file itself is not held in
// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/checkpoint_tensors.hpp>
#include <cupola/io/impl/file_parts.hpp>
#include <cupola/io/impl/load_plan.hpp>
#include <cupola/io/load_report.hpp>
#include <cupola/io/open_tensor_file.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/tensor/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

namespace impl {

/// Throws DataError unless all numbers of the tensor are finite, and those of a running variance at least 0. The
/// message names the first in the network's layout.
inline void check_numbers(TensorPieces& pieces, const FilePart& part, const SafeTensor& stored, bool is_variance) {
    std::int64_t place = std::numeric_limits<std::int64_t>::max();
    float found = 0;
    pieces.for_each(stored, [&](std::int64_t first, std::span<const float> values) {
        if (all_finite(values) && !is_variance) return;
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (all_finite(values.subspan(i, 1)) && !(is_variance && values[i] < 0)) continue;
            const std::int64_t here =
                place_in_arena(*part.tensor, place_of(part, first + static_cast<std::int64_t>(i)));
            if (here > place) continue;
            place = here;
            found = values[i];
        }
    });
    if (place == std::numeric_limits<std::int64_t>::max()) return;
    throw DataError(
        text(pieces.file().path(), " cannot be used: its ", part.buffer ? "running statistic " : "parameter ",
             element_text(part.tensor->name, part.tensor->own_shape, static_cast<std::size_t>(place), found)));
}

/// Loads into `state`, of which an error changes nothing before the file has been checked. Then the file is read anew:
/// only one that has changed since is an error.
inline LoadReport load_into(TensorPieces pieces, std::span<const LayerInfo> layers, TrainingState& state,
                            const LoadOptions& options) {
    const StoredTensors tensors = stored_tensors(layers);
    LoadPlan plan = plan_load(pieces.file(), tensors, options);
    const FixedArray<RunningStatistics> statistics = running_statistics(layers);
    for (const auto& [part, stored] : plan.loaded) {
        const std::int64_t offset = part->tensor->offset;
        const bool is_variance = part->buffer && std::ranges::any_of(statistics, [&](const RunningStatistics& each) {
                                     return each.variance == offset;
                                 });
        check_numbers(pieces, *part, *stored, is_variance);
    }
    std::vector<std::vector<float>*> of_parameters{&state.parameters, &state.averages};
    for (ReplicaState& each : state.replicas) of_parameters.push_back(&each.parameters);
    for (const auto& loaded : plan.loaded) {
        const FilePart& part = *loaded.first;
        pieces.for_each(*loaded.second, [&](std::int64_t first, std::span<const float> values) {
            if (part.buffer) return part_from_file(part, first, values, state.buffers.data());
            for (std::vector<float>* const arena : of_parameters) {
                // Moving averages lack the frozen parameters, which come after the others.
                if (part.tensor->offset < static_cast<std::int64_t>(arena->size()))
                    part_from_file(part, first, values, arena->data());
            }
        });
    }
    return std::move(plan.report);
}

}  // namespace impl

/// Loads into the state of a training of the network `layers`: into the parameters of every replica, their moving
/// averages, which then begin with them, and the running statistics. Throws InvalidArgument for a pattern that matches
/// nothing and for a table of names without a meaning; DataError, before anything is changed, where nothing could be
/// loaded, with `require_all` where something could not, for moving averages that the file lacks, for an entry of the
/// table that matches nothing in the file, for elements that are no floats, and for numbers that are not finite.
inline LoadReport load_parameters(const TensorFile& file, std::span<const LayerInfo> layers, TrainingState& state,
                                  const LoadOptions& options = {}) {
    TrainingState next = state;
    LoadReport report = impl::load_into(impl::TensorPieces(file), layers, next, options);
    state = std::move(next);
    return report;
}

/// Loads into a training, a DataParallel. Waits for queued steps. Throws as above, and an UnreadableFile.
template <class Training>
[[nodiscard]] LoadReport load_parameters(Training& training, const std::string& path, const LoadOptions& options = {}) {
    TrainingState state = training.state();
    const std::unique_ptr<TensorFile> file = open_tensor_file(path);
    LoadReport report = impl::load_into(impl::TensorPieces(*file), Training::NetworkType::layers, state, options);
    training.restore(state);
    return report;
}

}}  // namespace cupola::CUPOLA_ABI
