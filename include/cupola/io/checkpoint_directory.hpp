// SPDX-License-Identifier: Apache-2.0
//
// The folder of a training that writes checkpoints: created if it is missing, locked against a second training, cleared
// of unfinished files of a killed one.
//
//   CheckpointDirectory directory("run1", {.keep = 5, .keep_best = true});
//   directory.save(Net::layers, checkpoint);                   run1/model-<step>.safetensors
//   directory.save_best(Net::layers, checkpoint, precision);   run1/model-best.safetensors, if it is the best so far
//
// A new file is complete and synced before an old one is removed, so a killed process or a full disk leaves all earlier
// checkpoints. New checkpoints are compared with the best one of an earlier process too: `require_best_of` throws if
// that is of another network, and `best_info()` describes its run. The lock (`flock` on the file `lock`) ends with the
// process that holds it. On a file system without locks, or without syncs of a folder, there is a warning instead.
#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/core/finite.hpp>
#include <cupola/core/number_from_chars.hpp>
#include <cupola/core/write_signals.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/impl/whole_file.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct CheckpointDirectoryOptions {
    /// The newest checkpoints that are kept.
    int keep = 5;
    /// Whether the checkpoint with the largest metric is kept too, as model-best.safetensors.
    bool keep_best = false;
};

class CheckpointDirectory {
public:
    [[gnu::cold]] explicit CheckpointDirectory(std::string path, CheckpointDirectoryOptions options = {})
        : path_(std::move(path)), options_(options), lock_(locked(path_, options_, warnings_)) {
        if (const int error = impl::sync_folder(path_); impl::is_unsupported(error)) {
            warnings_.push_back(text("the folder ", path_, " cannot be synced (",
                                     std::generic_category().message(error),
                                     "): after a power failure its newest checkpoint may be missing"));
        }
        for (const std::string& name : impl::names_in_folder(path_)) {
            if (!impl::is_temporary_checkpoint(name)) continue;
            remove(text(path_, '/', name));
            warnings_.push_back(
                text(path_, '/', name, " was removed: a training ended while it was writing this file"));
        }
        if (options_.keep_best) read_best();
    }

    /// The name of the best checkpoint's metric in its info.
    static constexpr std::string_view metric_key = "metric";

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string best_path() const { return impl::checkpoint_path(path_, "best"); }
    /// The largest metric so far, also of an earlier process.
    [[nodiscard]] std::optional<double> best() const { return best_; }
    /// The texts of the run of the best checkpoint so far; empty if there is none.
    [[nodiscard]] const CheckpointInfo& best_info() const { return best_info_; }
    /// The description of its network (net/network_description.hpp); empty where it has none.
    [[nodiscard]] const std::string& best_network() const { return best_network_; }
    /// Throws DataError where the best checkpoint is of a network with other parameters than `Net::layers`: its metric
    /// cannot be compared, and it must not be replaced. `save_best` checks the same; a training checks it before its
    /// first step.
    void require_best_of(std::span<const LayerInfo> layers) {
        if (!best_ || best_compared_) return;
        try {
            static_cast<void>(
                read_checkpoint(best_path(), layers, ReadOptions{.network = NetworkInFile::of_same_parameters}));
        } catch (const DataError& error) {
            throw DataError(text(error.what(), "; rename it, or train in another folder"));
        }
        best_compared_ = true;
    }
    /// Messages about what was found when the directory was opened, to be shown to the user.
    [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
    /// The newest step first.
    [[nodiscard]] std::vector<CheckpointFile> list() const { return list_checkpoints(path_); }
    [[nodiscard]] FoundCheckpoint newest_valid(std::span<const LayerInfo> layers) const {
        return newest_valid_checkpoint(path_, layers);
    }

    /// Writes the checkpoint, removes the oldest ones, and returns the new one's path.
    std::string save(std::span<const LayerInfo> layers, const Checkpoint& checkpoint) {
        std::string saved = impl::checkpoint_path(path_, text(checkpoint.state.step));
        write_checkpoint(saved, layers, checkpoint);
        // Later steps belong to another run, or follow a damaged file: they are neither counted nor removed.
        int kept = 0;
        for (const CheckpointFile& file : list()) {
            if (file.step <= checkpoint.state.step && ++kept > options_.keep) remove(file.path);
        }
        return saved;
    }

    /// With `keep_best`, a metric that is larger than all before it makes this checkpoint the best one: a separate
    /// file, because damage to one file must not damage both. Throws DataError where the best one is of another
    /// network.
    void save_best(std::span<const LayerInfo> layers, const Checkpoint& checkpoint, double metric) {
        if (!options_.keep_best || impl::is_nan(metric)) return;
        require_best_of(layers);
        if (!best_ || metric > *best_) replace_best(layers, checkpoint, metric);
    }
    /// Makes this checkpoint the best one whatever its metric is: for a training that compares metrics itself.
    void replace_best(std::span<const LayerInfo> layers, const Checkpoint& checkpoint, double metric) {
        Checkpoint best = checkpoint;
        best.info.set(metric_key, exact_text(metric));
        write_checkpoint(best_path(), layers, best);
        best_ = metric;
        best_info_ = std::move(best.info);
        best_network_ = network_description(layers);
        best_compared_ = true;
    }

private:
    [[nodiscard]] static int locked(const std::string& path, const CheckpointDirectoryOptions& options,
                                    std::vector<std::string>& warnings) {
        require(options.keep >= 1, "at least 1 checkpoint must be kept, not ", options.keep);
        impl::make_folder(path);
        const std::string name = path + "/lock";
        const int handle = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (handle < 0) {
            throw DataError(text("the folder ", path, " cannot be written: ", std::generic_category().message(errno)));
        }
        char holder[32] = {};
        if (flock(handle, LOCK_EX | LOCK_NB) != 0) {
            const int error = errno;
            const std::string reason = std::generic_category().message(error);
            if (!impl::is_unsupported(error)) {
                const ssize_t length = pread(handle, holder, sizeof holder - 1, 0);
                close(handle);
                const std::string_view pid(holder, length > 0 ? static_cast<std::size_t>(length) : 0);
                require<DataError>(error == EWOULDBLOCK, name, " cannot be locked: ", reason);
                throw DataError(text("the folder ", path, " is in use by another training, process ",
                                     pid.empty() ? "unknown" : pid));
            }
            warnings.push_back(text(name, " cannot be locked (", reason,
                                    "): nothing keeps a second training from writing to the same folder"));
        }
        const std::string pid = text(getpid());
        const WriteSignalsBlock no_signal;
        const bool written =
            ftruncate(handle, 0) == 0 && pwrite(handle, pid.data(), pid.size(), 0) == static_cast<ssize_t>(pid.size());
        if (!written) {
            const int error = errno;
            close(handle);
            throw DataError(text(name, " cannot be written: ", std::generic_category().message(error)));
        }
        return handle;
    }

    static void remove(const std::string& file) {
        if (unlink(file.c_str()) == 0 || errno == ENOENT) return;
        throw DataError(text(file, " cannot be removed: ", std::generic_category().message(errno)));
    }

    /// Finds no best checkpoint if there is none yet or if it is damaged: the next metric then replaces it. One without
    /// a metric was not written by a training.
    void read_best() {
        const std::string path = best_path();
        struct stat status {};
        if (lstat(path.c_str(), &status) != 0) return;  // a link to a file that does not exist is an error below
        std::optional<SafetensorsFile> file;
        try {
            file.emplace(path);
        } catch (const UnreadableFile&) {
            throw;
        } catch (const DataError& error) {
            warnings_.push_back(text(error.what(), "; the next checkpoint with a metric replaces it"));
            return;
        }
        Checkpoint found;
        impl::read_metadata(*file, found);
        const std::string* const digits = found.info.find(metric_key);
        double metric = 0;
        require<DataError>(
            digits != nullptr &&
                number_from_chars(digits->data(), digits->data() + digits->size(), metric).ec == std::errc(),
            path,
            " has no metric to compare with: it was not kept by a training as its best; rename it, or train in "
            "another folder");
        best_ = metric;
        best_info_ = std::move(found.info);
        best_network_ = std::move(found.network);
    }

    std::string path_;
    CheckpointDirectoryOptions options_;
    std::vector<std::string> warnings_;
    impl::FileHandle lock_;
    std::optional<double> best_;
    CheckpointInfo best_info_;
    std::string best_network_;
    /// Whether the best checkpoint is known to be of the network that is trained.
    bool best_compared_ = false;
};

}}  // namespace cupola::CUPOLA_ABI
