// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint from which a run is resumed, and its comparison with the run's description.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include <cupola/core/error.hpp>
#include <cupola/device/device.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/standard_output.hpp>
#include <cupola/net/network_description.hpp>
#include <cupola/net/table.hpp>
#include <cupola/train/checkpoint_every.hpp>
#include <cupola/train/impl/run_folder.hpp>
#include <cupola/train/impl/run_records.hpp>
#include <cupola/train/training_run_options.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The differences between two runs: in their settings and in the machines that they run on; and the settings that are
/// not compared, because the checkpoint is older than their entries.
struct RunDifferences {
    std::string run, bits, not_compared;
};

/// The entries that older checkpoints do not have.
inline constexpr std::string_view added_entries[] = {"network",   "loss",      "data",     "order",
                                                     "transform", classes_key, network_key};

/// The description of a run with that of its network, which has a separate name in the file, apart from an entry
/// "network" of the program.
[[nodiscard, gnu::cold]] inline CheckpointInfo with_network(const CheckpointInfo& info, const std::string& network) {
    CheckpointInfo result = info;
    const std::string_view key = result.find("network") == nullptr ? std::string_view("network") : network_key;
    if (!network.empty()) result.set(key, network);
    return result;
}

[[nodiscard, gnu::cold]] inline RunDifferences differences_of_runs(const CheckpointInfo& before,
                                                                   const CheckpointInfo& now) {
    constexpr auto& machine = machine_property::all;
    RunDifferences result;
    for (const InfoDifference& difference : differences(before, now)) {
        const std::string& key = difference.key;
        // "classes.kind" belongs to one column.
        const std::string_view kind = std::string_view(key).substr(0, key.find('.'));
        if (difference.before.empty() && std::ranges::find(added_entries, kind) != std::end(added_entries)) {
            result.not_compared += text(result.not_compared.empty() ? "" : ", ", key);
            continue;
        }
        if (key == images_seen_key || key == losses_key || key == CheckpointDirectory::metric_key ||
            key == history_key || key == since_record_key)
            continue;
        std::string& list = std::ranges::find(machine, key) != machine.end() ? result.bits : result.run;
        list += text(list.empty() ? "" : "; ", to_string(difference));
    }
    return result;
}

class CheckpointToResume {
public:
    /// All arguments must outlive this object. `folder` is empty for a run without files.
    CheckpointToResume(const TrainingRunOptions& options, const std::optional<CheckpointDirectory>& folder,
                       const CheckpointInfo& info, const StandardOutput& output)
        : options_(options), folder_(folder), info_(info), output_(output) {}

    /// The checkpoint; empty for a new run. Throws if the folder does not fit `resume`, and for a checkpoint of another
    /// run.
    [[nodiscard, gnu::cold]] FoundCheckpoint find(std::span<const LayerInfo> layers) const {
        if (folder_) {
            for (const std::string& warning : folder_->warnings()) output_.print_message(text("warning: ", warning));
        }
        const std::string& path = options_.folder;
        const bool begins = options_.resume == Resume::no || (options_.resume == Resume::if_there &&
                                                              (is_missing(path) || list_checkpoints(path).empty()));
        if (begins) {
            if (folder_) require_no_checkpoints();
            return {};
        }
        FoundCheckpoint found =
            newest_valid_checkpoint(path, layers, ReadOptions{.network = NetworkInFile::of_same_parameters});
        for (const std::string& problem : found.damaged) output_.print_message(text("warning: ", problem));
        require<DataError>(found.checkpoint.has_value() || found.damaged.empty(), path,
                           " has no valid checkpoint to resume from: ", found.damaged.size(),
                           found.damaged.size() == 1 ? " is damaged" : " are damaged");
        require<DataError>(found.checkpoint.has_value(), path, " has no checkpoint to resume from");
        require<DataError>(found.checkpoint->resumable, found.path, " has parameters only: it cannot be resumed from");
        const CheckpointInfo now = with_network(info_, network_description(layers));
        require_same_run(found.path, with_network(found.checkpoint->info, found.checkpoint->network), now);
        if (folder_ && folder_->best()) require_best_of_same_run(now);
        return found;
    }

private:
    [[gnu::cold]] void require_no_checkpoints() const {
        const auto files = folder_->list();
        require<DataError>(files.empty(), options_.folder, " has checkpoints, the newest of step ",
                           files.empty() ? 0 : files.front().step, ": ", options_.names.resume,
                           " continues from it, another ", options_.names.folder, " starts a new run");
        // A new run would replace another run's best checkpoint.
        struct stat status {};
        const std::string best = folder_->best_path();
        require<DataError>(lstat(best.c_str(), &status) != 0, best,
                           " is the best checkpoint of another run: rename it, or start in another ",
                           options_.names.folder);
    }

    /// Throws DataError with the differences if the checkpoint at `path` belongs to a run with other settings, and
    /// InvalidArgument if that run was on another machine; with Resume::anyway it prints them and returns.
    [[gnu::cold]] void require_same_run(const std::string& path, const CheckpointInfo& before,
                                        const CheckpointInfo& now) const {
        const auto [run, bits, not_compared] = differences_of_runs(before, now);
        if (!not_compared.empty())
            output_.print_message(text("warning: ", path,
                                       " lacks entries that a run has now, and that are not compared: ", not_compared));
        if (run.empty() && bits.empty()) return;
        if (options_.resume == Resume::anyway) {
            output_.print_message(text("warning: continuing from ", path, " with other settings: ", run,
                                       run.empty() || bits.empty() ? "" : "; ", bits));
            return;
        }
        const RunOptionNames& names = options_.names;
        if (!run.empty()) {
            throw DataError(text(path, " is of a run with other settings: ", run, "; ", names.may_change,
                                 " may change, and ", names.resume_anyway, " continues with the changed settings"));
        }
        throw InvalidArgument(text("continuing from ", path, " here would not give the same bits: ", bits, "; ",
                                   names.resume_anyway, " continues without that guarantee"));
    }

    /// The same for the best checkpoint, with whose metric new ones are compared; the machine on which it was computed
    /// is irrelevant.
    [[gnu::cold]] void require_best_of_same_run(const CheckpointInfo& now) const {
        const std::string path = folder_->best_path(),
                          run =
                              differences_of_runs(with_network(folder_->best_info(), folder_->best_network()), now).run;
        if (run.empty()) return;
        require<DataError>(options_.resume == Resume::anyway, path,
                           " is the best checkpoint of a run with other settings: ", run, "; rename it, or ",
                           options_.names.resume_anyway, " compares with it and replaces it by a better one");
        output_.print_message(text("warning: ", path, " is the best checkpoint of a run with other settings: ", run));
    }

    const TrainingRunOptions& options_;
    const std::optional<CheckpointDirectory>& folder_;
    const CheckpointInfo& info_;
    const StandardOutput& output_;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
