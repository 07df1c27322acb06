// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints in a folder, `model-<step>.safetensors`, for readers: no lock is needed, since a file is complete or
// absent. io/checkpoint_directory.hpp is for the training that writes them.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cupola/core/error.hpp>
#include <cupola/core/listed.hpp>
#include <cupola/io/atomic_file.hpp>
#include <cupola/io/checkpoint.hpp>
#include <cupola/io/impl/folder.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct CheckpointFile {
    std::int64_t step = 0;
    std::string path;

    bool operator==(const CheckpointFile&) const = default;
};

/// The result of `newest_valid_checkpoint`: no checkpoint if the folder has no valid one.
struct FoundCheckpoint {
    std::optional<Checkpoint> checkpoint;
    std::string path;
    /// One message per newer file that is damaged and was skipped, to be shown to the user.
    std::vector<std::string> damaged;
};

namespace impl {

inline constexpr std::string_view checkpoint_prefix = "model-", checkpoint_suffix = ".safetensors";

[[nodiscard]] inline std::string checkpoint_path(const std::string& folder, std::string_view which) {
    return text(folder, '/', checkpoint_prefix, which, checkpoint_suffix);
}

/// The step in a checkpoint's name, or -1 for any other name.
[[nodiscard]] inline std::int64_t step_in_name(std::string_view name) {
    if (!name.starts_with(checkpoint_prefix) || !name.ends_with(checkpoint_suffix)) return -1;
    name.remove_prefix(checkpoint_prefix.size());
    if (name.size() <= checkpoint_suffix.size()) return -1;
    name.remove_suffix(checkpoint_suffix.size());
    std::int64_t step = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
    return error == std::errc() && text(step) == name ? step : -1;
}

/// The records of a run, beside its checkpoints; see train/training_run.hpp.
inline constexpr std::string_view history_file_name = "history.csv";

/// Whether this is the temporary name of a checkpoint, or of the history of its run, that was not finished.
[[nodiscard]] inline bool is_temporary_checkpoint(std::string_view name) {
    const std::string_view finished = name_of_temporary_file(name);
    return step_in_name(finished) >= 0 || finished == text(checkpoint_prefix, "best", checkpoint_suffix) ||
           finished == history_file_name;
}

}  // namespace impl

/// The checkpoints in `folder`, the newest step first.
[[nodiscard, gnu::cold]] inline std::vector<CheckpointFile> list_checkpoints(const std::string& folder) {
    std::vector<CheckpointFile> files;
    for (const std::string& name : impl::names_in_folder(folder)) {
        const std::int64_t step = impl::step_in_name(name);
        if (step >= 0) files.push_back({step, text(folder, '/', name)});
    }
    heap_sort(files, std::ranges::greater(), &CheckpointFile::step);
    return files;
}

/// The newest checkpoint in `folder` that is not damaged. One that is valid but of another network or version throws,
/// and so does one that cannot be read: an older one was not requested. `options` as in read_checkpoint.
[[nodiscard, gnu::cold]] inline FoundCheckpoint newest_valid_checkpoint(const std::string& folder,
                                                                        std::span<const LayerInfo> layers,
                                                                        const ReadOptions& options = {}) {
    FoundCheckpoint found;
    const std::vector<CheckpointFile> files = list_checkpoints(folder);
    for (const CheckpointFile& candidate : files) {
        std::optional<SafetensorsFile> file;
        try {
            file.emplace(candidate.path);
            require<DataError>(file->has_checksum(), candidate.path, " is damaged: its checksum is missing");
        } catch (const UnreadableFile& error) {
            if (error.code != ENOENT && error.code != ESTALE) throw;
            // A training has removed it since the folder was listed and written a newer one, or it is a dangling link.
            if (list_checkpoints(folder) != files) return newest_valid_checkpoint(folder, layers, options);
            found.damaged.emplace_back(error.what());
            continue;
        } catch (const DataError& error) {
            found.damaged.emplace_back(error.what());
            continue;
        }
        found.checkpoint = read_checkpoint(*file, layers, options);
        found.path = candidate.path;
        break;
    }
    return found;
}

[[nodiscard]] inline FoundCheckpoint newest_valid_checkpoint(const std::string& folder,
                                                             std::span<const LayerInfo> layers, FrozenInFile frozen) {
    return newest_valid_checkpoint(folder, layers, ReadOptions{.frozen = frozen});
}

}}  // namespace cupola::CUPOLA_ABI
