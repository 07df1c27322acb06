// SPDX-License-Identifier: Apache-2.0
//
// What load_parameters (io/load_parameters.hpp) reads of a file: the names, extents and types of the file beside those
// of the network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/extents.hpp>
#include <cupola/core/glob.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/impl/checkpoint_layout.hpp>
#include <cupola/io/impl/checkpoint_tensors.hpp>
#include <cupola/io/impl/file_parts.hpp>
#include <cupola/io/impl/json_string.hpp>
#include <cupola/io/impl/safetensors_header.hpp>
#include <cupola/io/impl/stored_floats.hpp>
#include <cupola/io/load_report.hpp>
#include <cupola/io/tensor_file.hpp>
#include <cupola/net/name_table.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline void require_patterns(const LoadOptions& options, const StoredTensors& tensors) {
    require(!options.patterns.empty(), "load_parameters needs at least one pattern");
    std::vector<std::string_view> names;
    for (const auto* const part : {&tensors.parameters, &tensors.buffers}) {
        for (const StoredTensor& tensor : *part) names.emplace_back(tensor.name);
    }
    for (const std::string& pattern : options.patterns) {
        const bool matches =
            std::ranges::any_of(names, [&](std::string_view name) { return glob_matches(pattern, name); });
        if (!matches) throw InvalidArgument(text("the pattern '", pattern, "' matches none of ", listed(names)));
    }
}

/// What is read of a file.
struct LoadPlan {
    LoadReport report;
    std::vector<FilePart> parts{};
    /// Those that are read, and the file's tensors.
    std::vector<std::pair<const FilePart*, const SafeTensor*>> loaded{};
    /// Those that the file lacks.
    std::vector<const FilePart*> absent{};
};

/// "head.weight is 3 x 6 here and 5 x 6 in the file; not in the file: head.bias", for an error; what is missing by its
/// name in the file.
[[nodiscard]] inline std::string shown_lacks(const LoadPlan& plan) {
    std::string others = listed(plan.report.other_extents, std::identity(), "; ");
    if (plan.absent.empty()) return others;
    return text(others, others.empty() ? "" : "; ", "not in the file: ", listed(plan.absent, [&](const FilePart* part) {
                    return plan.report.file_prefix + part->name;
                }));
}

/// "head.weight is 3 x 6 here and 5 x 6 in the file", for the parts of a tensor and what the file has for each.
[[nodiscard, gnu::cold]] inline std::string shown_extents(std::span<const FilePart> parts,
                                                          std::span<const SafeTensor* const> stored,
                                                          const std::string& prefix) {
    const FilePart& first = parts.front();
    const std::string &name = first.tensor->name, here = to_string(first.tensor->shape);
    const std::string there = extents_text(stored.front()->shape()), in_file = prefix + first.name;
    if (first.entry == nullptr && prefix.empty()) return text(name, " is ", here, " here and ", there, " in the file");
    if (first.entry == nullptr || (parts.size() == 1 && extents_text(first.extents) == here))
        return text(name, " is ", here, " here, and ", in_file, " is ", there, " in the file");
    std::string wanted, given;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const char* const between = i == 0 ? "" : ", ";
        wanted += text(between, prefix, parts[i].name, " of ", extents_text(parts[i].extents));
        given += text(between, extents_text(stored[i]->shape()));
    }
    const bool may_be_unequal = parts.size() > 1 && first.entry->rows.empty();
    return text(name, " is ", here, " here, from ", wanted, ", and the file has ", given,
                may_be_unequal ? "; .rows of the entry states unequal parts" : "");
}

/// Throws DataError for an entry that is to give one of the loaded tensors, or none of the network's, and whose names
/// the file does not have. An entry of which earlier ones take everything is left out.
inline void require_entries(const TensorFile& file, const NameTable& table, std::span<const FilePart> parts,
                            std::span<const std::string> patterns, const std::string& prefix) {
    for (const NameEntry& entry : table.entries) {
        if (entry.here.empty()) continue;
        const auto names_one = [&](const FilePart& part) { return glob_matches(entry.here, part.tensor->name); };
        const auto is_read = [&](const FilePart& part) {
            return part.entry == &entry && matches_any(patterns, part.tensor->name);
        };
        if (std::ranges::any_of(parts, names_one) && !std::ranges::any_of(parts, is_read)) continue;
        for (const std::string& name : entry.file) {
            const std::string pattern = prefix + name;
            const bool found = std::ranges::any_of(
                file.tensors(), [&](const SafeTensor& tensor) { return glob_matches(pattern, tensor.name); });
            require<DataError>(found, file.path(), " has no tensor ", pattern, ", which the entry ", to_string(entry),
                               " of the table of names is to read");
        }
    }
}

/// Matches the names, extents and types of the file with those of the network. Throws as load_parameters does. The plan
/// refers to the arguments.
[[nodiscard]] inline LoadPlan plan_load(const TensorFile& file, const StoredTensors& tensors,
                                        const LoadOptions& options) {
    require_patterns(options, tensors);
    require_tensors(file);
    LoadPlan plan{.report = {}, .parts = file_parts(tensors, options.names)};
    LoadReport& report = plan.report;
    const std::string prefix = report.file_prefix = prefix_in(file, options.file_prefix, plan.parts);
    const auto in_file = [&](const FilePart& part) {
        const SafeTensor* average = nullptr;
        if (options.weights == Weights::averages && !part.buffer)
            average = file.find(text(averages_prefix, prefix, part.name));
        return average != nullptr ? average : file.find(prefix + part.name);
    };
    require<DataError>(
        options.weights == Weights::trained ||
            std::ranges::any_of(file.tensors(),
                                [](const SafeTensor& tensor) { return tensor.name.starts_with(averages_prefix); }),
        file.path(), " has no moving averages");
    std::vector<std::string> reported;
    // All parts of a tensor.
    const auto add = [&](std::span<const FilePart> parts) {
        const std::string& name = parts.front().tensor->name;
        if (!matches_any(options.patterns, name)) return report.not_matched.push_back(name);
        std::vector<const SafeTensor*> stored;
        const std::size_t absent = plan.absent.size();
        bool equal = true;
        for (const FilePart& part : parts) {
            stored.push_back(in_file(part));
            if (stored.back() == nullptr) {
                plan.absent.push_back(&part);
            } else {
                equal = equal && stored.back()->shape() == part.extents;
            }
        }
        if (plan.absent.size() > absent) return report.missing.push_back(name);
        for (const FilePart& part : parts) reported.push_back(prefix + part.name);
        if (!equal) return report.other_extents.push_back(shown_extents(parts, stored, prefix));
        for (std::size_t i = 0; i < parts.size(); ++i) {
            require<DataError>(is_stored_float(stored[i]->type), file.path(), ": ", shown(stored[i]->name),
                               " has elements of type ", shown(stored[i]->type),
                               "; F32, F16, BF16 and F64 are supported");
            plan.loaded.emplace_back(&parts[i], stored[i]);
        }
        report.loaded.push_back(name);
    };
    for (std::size_t i = 0; i < plan.parts.size();) {
        const std::size_t begin = i;
        while (i < plan.parts.size() && plan.parts[i].tensor == plan.parts[begin].tensor) ++i;
        add(std::span(plan.parts).subspan(begin, i - begin));
    }
    for (const SafeTensor& tensor : file.tensors()) {
        const std::string_view name = tensor.name;
        const bool other = name.starts_with(averages_prefix) || name.starts_with(optimizer_prefix) ||
                           name.starts_with(replica_prefix) || name.starts_with(outer_prefix) ||
                           name.ends_with(".num_batches_tracked") || is_ignored(options.names, name, prefix);
        if (!other && std::ranges::find(reported, name) == reported.end()) report.unused.emplace_back(shown(name));
    }
    const bool any_of_prefix = std::ranges::any_of(
        file.tensors(), [&](const SafeTensor& tensor) { return std::string_view(tensor.name).starts_with(prefix); });
    require<DataError>(any_of_prefix, "nothing could be loaded from ", file.path(), ": no name in it begins with ",
                       prefix, "; it has ", file.tensors().size(), " tensors, the first is ",
                       shown(file.tensors().front().name));
    require_entries(file, options.names, plan.parts, options.patterns, prefix);
    if (!report.loaded.empty() && (!options.require_all || report.complete())) return plan;
    std::string hint;
    for (const FilePart* const part : plan.absent) {
        if (prefix.empty() && hint.empty() && !part->buffer) hint = hint_of_prefix(file, std::span(part, 1));
    }
    const std::string lacks = shown_lacks(plan) + hint;
    require<DataError>(!report.loaded.empty(), "nothing could be loaded from ", file.path(), ": ", lacks);
    throw DataError(text(file.path(), " lacks a part of what was to be loaded: ", lacks));
}

}}}  // namespace cupola::CUPOLA_ABI::impl
