// SPDX-License-Identifier: Apache-2.0
//
// Loads a part of a network's parameters and running statistics from a safetensors file, a checkpoint of Cupola, a file
// of torch.save or an index of several such files (io/open_tensor_file.hpp), by patterns of their names
// (core/glob.hpp), and reports what was loaded and what was not:
//
//   const LoadReport report = load_parameters(training, "pretrained.safetensors", {.patterns = {"body.*"}});
//   std::puts(to_string(report).c_str());
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
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/fixed_array.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/checkpoint_tensors.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/safetensors_header.hpp>
#include <cupola/io/impl/stored_floats.hpp>
#include <cupola/io/open_tensor_file.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_state.hpp>
#include <cupola/tensor/finite.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct LoadOptions {
    /// Patterns: parameters and running statistics whose full names match one of them are loaded.
    std::vector<std::string> patterns{"*"};
    /// The beginning of the names in the file: with "backbone.", body.weight is the file's backbone.body.weight.
    std::string file_prefix{};
    /// The parameters of the file, or their moving averages; a frozen parameter has no average and is taken itself.
    Weights weights = Weights::trained;
    /// Whether anything that a pattern matches and that cannot be loaded is an error.
    bool require_all = false;
};

/// Full names of parameters and running statistics, in the order of the network; `unused` in that of the file.
struct LoadReport {
    /// The beginning of the names in the file: as in the options, or in a file of torch.save "module." or "_orig_mod.".
    std::string file_prefix{};
    std::vector<std::string> loaded{};
    /// The file has no tensor of this name.
    std::vector<std::string> missing{};
    /// The file's tensor has other extents: "head.weight is 10 x 64 here and 100 x 64 in the file", with a prefix
    /// "head.weight is 10 x 64 here, and net.head.weight is 100 x 64 in the file".
    std::vector<std::string> other_extents{};
    /// No pattern matches these.
    std::vector<std::string> not_matched{};
    /// Parameters and running statistics of the file that were not loaded.
    std::vector<std::string> unused{};

    /// Whether everything was loaded that the patterns match.
    [[nodiscard]] bool complete() const { return missing.empty() && other_extents.empty(); }
};

/// A line per kind that is not empty: "loaded 4: body.weight, body.bias, ...", with a prefix "loaded 4, each as net.
/// and its name: ...".
[[nodiscard]] inline std::string to_string(const LoadReport& report) {
    std::string result;
    const auto line = [&](const char* what, const std::vector<std::string>& names, bool has_prefix = false) {
        if (names.empty()) return;
        result += text(result.empty() ? "" : "\n", what, ' ', names.size());
        if (has_prefix && !report.file_prefix.empty())
            result += text(names.size() == 1 ? ", as " : ", each as ", report.file_prefix, " and its name");
        result += ": ";
        for (std::size_t i = 0; i < names.size(); ++i) result += text(i == 0 ? "" : ", ", names[i]);
    };
    line("loaded", report.loaded, true);
    line("not in the file", report.missing, true);
    line("of other extents", report.other_extents);
    line("matched by no pattern", report.not_matched);
    line("in the file and not used", report.unused);
    return result;
}

namespace impl {

/// "head.weight is 3 x 6 here and 5 x 6 in the file; not in the file: head.bias", for an error; what is missing by its
/// name in the file.
[[nodiscard]] inline std::string shown_lacks(const LoadReport& report) {
    std::string result;
    for (const std::string& other : report.other_extents) result += text(result.empty() ? "" : "; ", other);
    for (std::size_t i = 0; i < report.missing.size(); ++i)
        result += text(i > 0 ? ", " : (result.empty() ? "not in the file: " : "; not in the file: "),
                       report.file_prefix, report.missing[i]);
    return result;
}

inline void require_patterns(const LoadOptions& options, const StoredTensors& tensors) {
    require(!options.patterns.empty(), "load_parameters needs at least one pattern");
    for (const std::string& pattern : options.patterns) {
        bool matches = false;
        std::string names;
        for (const auto* const part : {&tensors.parameters, &tensors.buffers}) {
            for (const StoredTensor& tensor : *part) {
                matches = matches || glob_matches(pattern, tensor.name);
                names += text(names.empty() ? "" : ", ", tensor.name);
            }
        }
        require(matches, "the pattern '", pattern, "' matches none of ", names);
    }
}

/// A tensor of the network and what is loaded into it.
struct LoadedTensor {
    const StoredTensor* to = nullptr;
    const SafeTensor* from = nullptr;
    bool buffer = false;
};
struct LoadPlan {
    LoadReport report;
    std::vector<LoadedTensor> tensors{};
};

/// Matches the names, extents and types of the file with those of the network. Throws as load_parameters does.
[[nodiscard]] inline LoadPlan plan_load(const TensorFile& file, const StoredTensors& tensors,
                                        const LoadOptions& options) {
    require_patterns(options, tensors);
    const std::string prefix = prefix_in(file, options.file_prefix, tensors.parameters);
    const auto in_file = [&](const StoredTensor& tensor, bool buffer) {
        const SafeTensor* average = nullptr;
        if (options.weights == Weights::averages && !buffer)
            average = file.find(text(averages_prefix, prefix, tensor.name));
        return average != nullptr ? average : file.find(prefix + tensor.name);
    };
    require<DataError>(
        options.weights == Weights::trained ||
            std::ranges::any_of(file.tensors(),
                                [](const SafeTensor& tensor) { return tensor.name.starts_with(averages_prefix); }),
        file.path(), " has no moving averages");
    LoadPlan plan{.report = {.file_prefix = prefix}};
    LoadReport& report = plan.report;
    std::vector<std::string> used;
    const auto add = [&](const StoredTensor& tensor, bool buffer) {
        const bool matched = std::ranges::any_of(
            options.patterns, [&](const std::string& pattern) { return glob_matches(pattern, tensor.name); });
        if (!matched) return report.not_matched.push_back(tensor.name);
        const SafeTensor* const stored = in_file(tensor, buffer);
        if (stored == nullptr) return report.missing.push_back(tensor.name);
        const std::vector<std::int64_t> extents = stored->shape();
        const Shape& own = tensor.shape;
        if (!std::equal(extents.begin(), extents.end(), own.extents.begin(),
                        own.extents.begin() + static_cast<std::ptrdiff_t>(own.rank))) {
            std::string there;
            for (const std::int64_t extent : extents) there += text(there.empty() ? "" : " x ", extent);
            const std::string of_file = prefix.empty() ? std::string() : text(prefix, tensor.name, " is ");
            report.other_extents.push_back(text(tensor.name, " is ", to_string(own),
                                                prefix.empty() ? " here and " : " here, and ", of_file,
                                                there.empty() ? "a single number" : there, " in the file"));
            return;
        }
        require<DataError>(is_stored_float(stored->type), file.path(), ": ", shown(stored->name),
                           " has elements of type ", shown(stored->type), "; F32, F16, BF16 and F64 are supported");
        plan.tensors.push_back({&tensor, stored, buffer});
        report.loaded.push_back(tensor.name);
        used.push_back(prefix + tensor.name);
    };
    for (const StoredTensor& tensor : tensors.parameters) add(tensor, false);
    for (const StoredTensor& tensor : tensors.buffers) add(tensor, true);
    for (const SafeTensor& tensor : file.tensors()) {
        const std::string_view name = tensor.name;
        const bool other = name.starts_with(averages_prefix) || name.starts_with(optimizer_prefix) ||
                           name.starts_with(replica_prefix) || name.starts_with(outer_prefix) ||
                           name.ends_with(".num_batches_tracked");
        if (!other && std::ranges::find(used, name) == used.end()) report.unused.emplace_back(shown(name));
    }
    const bool any_of_prefix = std::ranges::any_of(
        file.tensors(), [&](const SafeTensor& tensor) { return std::string_view(tensor.name).starts_with(prefix); });
    require<DataError>(any_of_prefix, "nothing could be loaded from ", file.path(), ": no name in it begins with ",
                       prefix, "; it has ", file.tensors().size(), " tensors",
                       file.tensors().empty() ? "" : ", the first is ",
                       file.tensors().empty() ? "" : shown(file.tensors().front().name));
    if (report.loaded.empty() || (options.require_all && !report.complete())) {
        std::string hint;
        for (std::size_t i = 0; prefix.empty() && hint.empty() && i < tensors.parameters.size(); ++i) {
            if (std::ranges::find(report.missing, tensors.parameters[i].name) != report.missing.end())
                hint = hint_of_prefix(file, std::span(tensors.parameters).subspan(i, 1));
        }
        const std::string lacks = shown_lacks(report) + hint;
        require<DataError>(!report.loaded.empty(), "nothing could be loaded from ", file.path(), ": ", lacks);
        throw DataError(text(file.path(), " lacks a part of what was to be loaded: ", lacks));
    }
    return plan;
}

/// Throws DataError unless all numbers of the tensor are finite, and those of a running variance at least 0. The
/// message names the first in the network's layout.
inline void check_numbers(TensorPieces& pieces, const LoadedTensor& tensor, bool is_variance) {
    std::int64_t place = std::numeric_limits<std::int64_t>::max();
    float found = 0;
    pieces.for_each(*tensor.from, [&](std::int64_t first, std::span<const float> values) {
        if (all_finite(values) && !is_variance) return;
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (all_finite(values.subspan(i, 1)) && !(is_variance && values[i] < 0)) continue;
            const std::int64_t here = place_in_arena(*tensor.to, first + static_cast<std::int64_t>(i));
            if (here > place) continue;
            place = here;
            found = values[i];
        }
    });
    if (place == std::numeric_limits<std::int64_t>::max()) return;
    throw DataError(text(pieces.file().path(), " cannot be used: its ",
                         tensor.buffer ? "running statistic " : "parameter ",
                         element_text(tensor.to->name, tensor.to->own_shape, static_cast<std::size_t>(place), found)));
}

/// Loads into `state`, of which an error changes nothing before the file has been checked. Then the file is read anew:
/// only one that has changed since is an error.
inline LoadReport load_into(TensorPieces pieces, std::span<const LayerInfo> layers, TrainingState& state,
                            const LoadOptions& options) {
    const StoredTensors tensors = stored_tensors(layers);
    LoadPlan plan = plan_load(pieces.file(), tensors, options);
    const FixedArray<RunningStatistics> statistics = running_statistics(layers);
    for (const LoadedTensor& tensor : plan.tensors) {
        const bool is_variance = tensor.buffer && std::ranges::any_of(statistics, [&](const RunningStatistics& each) {
                                     return each.variance == tensor.to->offset;
                                 });
        check_numbers(pieces, tensor, is_variance);
    }
    std::vector<std::vector<float>*> of_parameters{&state.parameters, &state.averages};
    for (ReplicaState& each : state.replicas) of_parameters.push_back(&each.parameters);
    for (const LoadedTensor& tensor : plan.tensors) {
        pieces.for_each(*tensor.from, [&](std::int64_t first, std::span<const float> values) {
            if (tensor.buffer) return from_file(*tensor.to, first, values, state.buffers.data());
            for (std::vector<float>* const arena : of_parameters) {
                // Moving averages lack the frozen parameters, which come after the others.
                if (tensor.to->offset < static_cast<std::int64_t>(arena->size()))
                    from_file(*tensor.to, first, values, arena->data());
            }
        });
    }
    return std::move(plan.report);
}

}  // namespace impl

/// Loads into the state of a training of the network `layers`: into the parameters of every replica, their moving
/// averages, which then begin with them, and the running statistics. Throws InvalidArgument for a pattern that matches
/// nothing; DataError, before anything is changed, where nothing could be loaded, with `require_all` where something
/// could not, for moving averages that the file lacks, for elements that are no floats, and for numbers that are not
/// finite.
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
