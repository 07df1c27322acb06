// SPDX-License-Identifier: Apache-2.0
//
// What load_parameters (io/load_parameters.hpp) reads of a file: the names, extents and types of the file beside those
// of the network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/checkpoint_tensors.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/safetensors_header.hpp>
#include <cupola/io/impl/stored_floats.hpp>
#include <cupola/io/load_report.hpp>
#include <cupola/io/tensor_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

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

}}}  // namespace cupola::CUPOLA_ABI::impl
