// SPDX-License-Identifier: Apache-2.0
//
// Loads a part of a network's parameters and running statistics from a safetensors file, a checkpoint of Cupola or a
// file that PyTorch saved, also by torch.save (io/torch_file.hpp), by patterns of their names (core/glob.hpp), and
// reports what was loaded and what was not:
//
//   const LoadReport report = load_parameters(training, "pretrained.safetensors", {.patterns = {"body.*"}});
//   std::puts(to_string(report).c_str());
//
// The network may differ from the file's: what the file lacks, or has with other extents, keeps its values. Use it
// before the first step: the step and the optimiser's state stay as they are. `restore` of a whole checkpoint continues
// a training.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/checkpoint_tensors.hpp>
#include <cupola/io/impl/stored_floats.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/io/torch_file.hpp>
#include <cupola/net/table.hpp>
#include <cupola/parallel/state_transfer.hpp>
#include <cupola/parallel/step_report.hpp>
#include <cupola/parallel/training_state.hpp>

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

/// The arenas of one replica into which a tensor is loaded.
inline void load_tensor(const TensorFile& file, const SafeTensor& stored, const StoredTensor& tensor,
                        std::vector<float>& piece, std::span<std::vector<float>* const> arenas) {
    piece.resize(tensor.size());
    file.read_floats(stored, piece.data());
    for (std::vector<float>* const arena : arenas) {
        // Moving averages lack the frozen parameters, which come after the others.
        if (tensor.offset < static_cast<std::int64_t>(arena->size())) from_file(tensor, piece.data(), arena->data());
    }
}

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

}  // namespace impl

/// Loads into the state of a training of the network `layers`: into the parameters of every replica, their moving
/// averages, which then begin with them, and the running statistics. Throws InvalidArgument for a pattern that matches
/// nothing; DataError, before anything is changed, where nothing could be loaded, with `require_all` where something
/// could not, for moving averages that the file lacks, for elements that are no floats, and for numbers that are not
/// finite.
inline LoadReport load_parameters(const TensorFile& file, std::span<const LayerInfo> layers, TrainingState& state,
                                  const LoadOptions& options = {}) {
    const impl::StoredTensors tensors = impl::stored_tensors(layers);
    impl::require_patterns(options, tensors);
    const std::string prefix = impl::prefix_in(file, options.file_prefix, tensors.parameters);
    const auto in_file = [&](const impl::StoredTensor& tensor, bool buffer) {
        const SafeTensor* average = nullptr;
        if (options.weights == Weights::averages && !buffer)
            average = file.find(text(impl::averages_prefix, prefix, tensor.name));
        return average != nullptr ? average : file.find(prefix + tensor.name);
    };
    require<DataError>(options.weights == Weights::trained ||
                           std::ranges::any_of(
                               file.tensors(),
                               [](const SafeTensor& tensor) { return tensor.name.starts_with(impl::averages_prefix); }),
                       file.path(), " has no moving averages");
    LoadReport report{.file_prefix = prefix};
    TrainingState next = state;
    std::vector<float> piece;
    std::vector<std::string> used;
    const auto load = [&](const impl::StoredTensor& tensor, bool buffer) {
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
        require<DataError>(impl::is_stored_float(stored->type), file.path(), ": ", impl::shown(stored->name),
                           " has elements of type ", impl::shown(stored->type),
                           "; F32, F16, BF16 and F64 are supported");
        std::vector<std::vector<float>*> arenas;
        if (buffer) {
            arenas.push_back(&next.buffers);
        } else {
            arenas = {&next.parameters, &next.averages};
            for (ReplicaState& each : next.replicas) arenas.push_back(&each.parameters);
        }
        impl::load_tensor(file, *stored, tensor, piece, arenas);
        report.loaded.push_back(tensor.name);
        used.push_back(prefix + tensor.name);
    };
    for (const impl::StoredTensor& tensor : tensors.parameters) load(tensor, false);
    for (const impl::StoredTensor& tensor : tensors.buffers) load(tensor, true);
    for (const SafeTensor& tensor : file.tensors()) {
        const std::string_view name = tensor.name;
        const bool other = name.starts_with(impl::averages_prefix) || name.starts_with(impl::optimizer_prefix) ||
                           name.starts_with(impl::replica_prefix) || name.starts_with(impl::outer_prefix) ||
                           name.ends_with(".num_batches_tracked");
        if (!other && std::ranges::find(used, name) == used.end()) report.unused.emplace_back(impl::shown(name));
    }
    const bool any_of_prefix = std::ranges::any_of(
        file.tensors(), [&](const SafeTensor& tensor) { return std::string_view(tensor.name).starts_with(prefix); });
    require<DataError>(any_of_prefix, "nothing could be loaded from ", file.path(), ": no name in it begins with ",
                       prefix, "; it has ", file.tensors().size(), " tensors",
                       file.tensors().empty() ? "" : ", the first is ",
                       file.tensors().empty() ? "" : impl::shown(file.tensors().front().name));
    if (report.loaded.empty() || (options.require_all && !report.complete())) {
        std::string hint;
        for (std::size_t i = 0; prefix.empty() && hint.empty() && i < tensors.parameters.size(); ++i) {
            if (std::ranges::find(report.missing, tensors.parameters[i].name) != report.missing.end())
                hint = impl::hint_of_prefix(file, std::span(tensors.parameters).subspan(i, 1));
        }
        const std::string lacks = impl::shown_lacks(report) + hint;
        require<DataError>(!report.loaded.empty(), "nothing could be loaded from ", file.path(), ": ", lacks);
        throw DataError(text(file.path(), " lacks a part of what was to be loaded: ", lacks));
    }
    if (const std::string found = non_finite_part(layers, next); !found.empty())
        throw DataError(text(file.path(), " cannot be used: its ", found));
    state = std::move(next);
    return report;
}

/// Loads into a training, a DataParallel. Waits for queued steps. Throws as above, and an UnreadableFile.
template <class Training>
[[nodiscard]] LoadReport load_parameters(Training& training, const std::string& path, const LoadOptions& options = {}) {
    TrainingState state = training.state();
    LoadReport report = load_parameters(*open_tensor_file(path), Training::NetworkType::layers, state, options);
    training.restore(state);
    return report;
}

}}  // namespace cupola::CUPOLA_ABI
