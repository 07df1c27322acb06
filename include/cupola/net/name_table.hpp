// SPDX-License-Identifier: Apache-2.0
//
// A table of names: how the tensors of another toolkit's files are the parameters and running statistics of a network.
// It works in both directions: load_parameters, read_checkpoint and Predictor read by it, and write_torch_file
// (io/torch_writer.hpp) writes what was read under the other toolkit's names again.
//
//   const NameTable names{
//       {.file = {"head.fc.*"}, .here = "classifier.*"},                                    another name
//       {.file = {"h.*.c_fc.weight"}, .here = "h.*.fc.weight", .axes = {1, 0}},             transposed
//       {.file = {"pre_logits.weight"}, .here = "fc.weight", .extents = {0, -1, 7, 7}},     of other extents
//       {.file = {"*.q.*", "*.k.*", "*.v.*"}, .here = "*.qkv.*"},                           several in one
//       {.file = {"*.position_ids"}}};                                                      ignored
//
// The first entry whose `here` matches a full name says what that is in the file; what no entry matches has the same
// name there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

/// An entry of a table of names. `*` stands for any characters, dots included, as in core/glob.hpp.
struct NameEntry {
    /// Names in the file: each `*` stands for what that at its place in `here` stands for. Several are the rows of one
    /// parameter, its parts along the first axis, one after another.
    std::vector<std::string> file{};
    /// Full names of parameters and running statistics of the network. Empty for tensors of the file that are ignored,
    /// which it need not have.
    std::string here{};
    /// Axis i here is the axis `axes[i]` of the tensor in the file, as in PyTorch's permute. Empty for the same order.
    std::vector<std::size_t> axes{};
    /// The extents in the file, in the order of the axes here: 0 stands for the one at its place here, -1 for what
    /// remains, as in ONNX's Reshape. Empty for the same as here.
    std::vector<std::int64_t> extents{};
    /// With several names in the file, the rows of each. Empty for equal parts.
    std::vector<std::int64_t> rows{};
};

/// "q.*, k.* -> qk.*", or "*.position_ids" for what is ignored.
[[nodiscard, gnu::cold]] inline std::string to_string(const NameEntry& entry) {
    std::string result;
    for (const std::string& name : entry.file) result += text(result.empty() ? "" : ", ", name);
    return entry.here.empty() ? result : text(result, " -> ", entry.here);
}

/// Entries, of which the first that matches a name counts.
struct NameTable {
    std::vector<NameEntry> entries{};

    NameTable() = default;
    NameTable(std::initializer_list<NameEntry> list) : entries(list) {}

    /// The entries of both: those of `first` count before those of `second`, of which the ones with the same `here` are
    /// left out.
    [[nodiscard]] friend NameTable operator+(NameTable first, const NameTable& second) {
        const std::size_t own = first.entries.size();
        for (const NameEntry& entry : second.entries) {
            const auto end = first.entries.begin() + static_cast<std::ptrdiff_t>(own);
            const bool replaced = !entry.here.empty() && std::any_of(first.entries.begin(), end, [&](const auto& each) {
                return each.here == entry.here;
            });
            if (!replaced) first.entries.push_back(entry);
        }
        return first;
    }
};

namespace impl {

[[nodiscard]] inline std::ptrdiff_t stars_in(std::string_view pattern) {
    return std::count(pattern.begin(), pattern.end(), '*');
}

/// Throws InvalidArgument for an entry that has no meaning for any network.
inline void require_valid_entry(const NameEntry& entry) {
    const std::string shown = text("the entry ", to_string(entry), " of the table of names ");
    require(!entry.file.empty(), shown, "has no name in the file");
    if (entry.here.empty()) {
        require(entry.axes.empty() && entry.extents.empty() && entry.rows.empty(), shown,
                "has no name in the network, so that its tensors are ignored, and takes no axes, extents or rows");
        return;
    }
    require(entry.here.find('?') == std::string::npos, shown, "has a ?: only * stands for other characters");
    for (const std::string& name : entry.file) {
        require(name.find('?') == std::string::npos, shown, "has a ?: only * stands for other characters");
        require(stars_in(name) == stars_in(entry.here), shown, "has ", stars_in(name), " * in ", name, " and ",
                stars_in(entry.here), " in ", entry.here);
    }
    std::vector<bool> seen(entry.axes.size());
    for (const std::size_t axis : entry.axes) {
        require(axis < seen.size() && !seen[axis], shown, "has axes that are not 0 to ", seen.size() - 1,
                ", each once, in any order");
        seen[axis] = true;
    }
    const bool extents = std::ranges::all_of(entry.extents, [](std::int64_t extent) { return extent >= -1; });
    require(extents && std::ranges::count(entry.extents, -1) <= 1, shown,
            "has extents other than positive ones, 0 for the same and at most one -1 for what remains");
    require(entry.axes.empty() || entry.extents.empty() || entry.axes.size() == entry.extents.size(), shown, "has ",
            entry.axes.size(), " axes and ", entry.extents.size(), " extents");
    const bool rows = std::ranges::all_of(entry.rows, [](std::int64_t count) { return count > 0; });
    require(entry.rows.empty() || (rows && entry.rows.size() == entry.file.size()), shown, "has ", entry.file.size(),
            " names in the file, and its rows are not a positive number for each");
}

/// Throws InvalidArgument for a table that has no meaning for any network.
inline void require_valid_names(const NameTable& table) {
    for (std::size_t i = 0; i < table.entries.size(); ++i) {
        const NameEntry& entry = table.entries[i];
        require_valid_entry(entry);
        for (std::size_t k = 0; k < i && !entry.here.empty(); ++k) {
            require(table.entries[k].here != entry.here, "two entries of the table of names give ", entry.here, ": ",
                    to_string(table.entries[k]), " and ", to_string(entry));
        }
    }
}

}  // namespace impl

}}  // namespace cupola::CUPOLA_ABI
