// SPDX-License-Identifier: Apache-2.0
//
// The folder of a training that writes checkpoints: made if it is missing, locked against a second training, cleared of
// files that a killed one had not finished.
//
//   CheckpointDirectory directory("run1", {.keep = 5, .keep_best = true});
//   directory.save(Net::rows, checkpoint);                   run1/model-<step>.safetensors
//   directory.save_best(Net::rows, checkpoint, precision);   run1/model-best.safetensors, if it is the best so far
//
// A new file is whole and synced before an old one is removed, so that a process that is killed, or a disk that fills
// up, leaves every checkpoint that was there. The lock (`flock` on the file `lock`) ends with the process that holds
// it.
#pragma once

#include <cerrno>
#include <charconv>
#include <cmath>
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
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/io/checkpoint_files.hpp>
#include <cupola/io/impl/whole_file.hpp>

namespace cupola::inline CUPOLA_ABI {

struct CheckpointDirectoryOptions {
    /// The newest checkpoints that are kept.
    int keep = 5;
    /// Beside them the one with the largest metric, as model-best.safetensors.
    bool keep_best = false;
};

class CheckpointDirectory {
public:
    explicit CheckpointDirectory(std::string path, CheckpointDirectoryOptions options = {})
        : path_(std::move(path)), options_(options), lock_(locked(path_, options_)) {
        for (const std::string& name : impl::names_in_folder(path_)) {
            if (!impl::is_temporary_checkpoint(name)) continue;
            remove(text(path_, '/', name));
            remarks_.push_back(text(path_, '/', name, " was removed: a training was ended while it wrote it"));
        }
        if (options_.keep_best) best_ = metric_of_best();
    }

    [[nodiscard]] const std::string& path() const { return path_; }
    /// The largest metric so far, also of an earlier process.
    [[nodiscard]] std::optional<double> best() const { return best_; }
    /// What was found when the directory was opened and its user may want to know, a sentence each. Show them.
    [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }
    /// The newest step first.
    [[nodiscard]] std::vector<CheckpointFile> list() const { return list_checkpoints(path_); }
    [[nodiscard]] FoundCheckpoint newest_sound(std::span<const Row> rows) const {
        return newest_sound_checkpoint(path_, rows);
    }

    /// Writes the checkpoint, removes the oldest ones, and returns the new one's path.
    std::string save(std::span<const Row> rows, const Checkpoint& checkpoint) {
        std::string saved = impl::checkpoint_path(path_, text(checkpoint.state.step));
        write_checkpoint(saved, rows, checkpoint);
        // Steps beyond this one are another run's, or what comes after a damaged file: they are neither counted nor
        // removed.
        int kept = 0;
        for (const CheckpointFile& file : list()) {
            if (file.step <= checkpoint.state.step && ++kept > options_.keep) remove(file.path);
        }
        return saved;
    }

    /// With `keep_best`, a metric that is larger than all before it makes this checkpoint the best one: a file of its
    /// own, for a second name of the same file would be lost with the file's contents.
    void save_best(std::span<const Row> rows, const Checkpoint& checkpoint, double metric) {
        if (!options_.keep_best || std::isnan(metric) || (best_ && metric <= *best_)) return;
        Checkpoint best = checkpoint;
        best.info.set(metric_key, exact_text(metric));
        write_checkpoint(impl::checkpoint_path(path_, "best"), rows, best);
        best_ = metric;
    }

private:
    static constexpr std::string_view metric_key = "metric";

    [[nodiscard]] static int locked(const std::string& path, const CheckpointDirectoryOptions& options) {
        require(options.keep >= 1, "at least 1 checkpoint is kept, not ", options.keep);
        impl::make_folder(path);
        const std::string name = path + "/lock";
        const int handle = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (handle < 0) {
            throw DataError(text("the folder ", path, " cannot be written: ", std::generic_category().message(errno)));
        }
        char holder[32] = {};
        if (flock(handle, LOCK_EX | LOCK_NB) != 0) {
            const int error = errno;
            const ssize_t length = pread(handle, holder, sizeof holder - 1, 0);
            close(handle);
            const std::string_view pid(holder, length > 0 ? static_cast<std::size_t>(length) : 0);
            require<DataError>(error == EWOULDBLOCK, name,
                               " cannot be locked: ", std::generic_category().message(error));
            throw DataError(
                text("the folder ", path, " is in use by another training, process ", pid.empty() ? "unknown" : pid));
        }
        const std::string pid = text(getpid());
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

    /// None where there is no best checkpoint yet, or where it is damaged: the next metric then replaces it.
    [[nodiscard]] std::optional<double> metric_of_best() {
        const std::string path = impl::checkpoint_path(path_, "best");
        if (access(path.c_str(), F_OK) != 0) return {};
        try {
            const SafetensorsFile file(path);
            for (const auto& [key, value] : file.metadata()) {
                double metric = 0;
                if (key == metric_key &&
                    std::from_chars(value.data(), value.data() + value.size(), metric).ec == std::errc()) {
                    return metric;
                }
            }
        } catch (const UnreadableFile&) {
            throw;
        } catch (const DataError& error) {
            remarks_.push_back(text(error.what(), "; the next checkpoint with a metric replaces it"));
        }
        return {};
    }

    std::string path_;
    CheckpointDirectoryOptions options_;
    impl::FileHandle lock_;
    std::optional<double> best_;
    std::vector<std::string> remarks_;
};

}  // namespace cupola::inline CUPOLA_ABI
