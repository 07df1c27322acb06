// SPDX-License-Identifier: Apache-2.0
#include "download.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/duration_text.hpp>
#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/data/cifar10.hpp>
#include <cupola/device/device.hpp>
#include <cupola/io/atomic_file.hpp>
#include <cupola/io/standard_output.hpp>

#include "checksum.hpp"
#include "transfer.hpp"
#include "unpack.hpp"

namespace cifar10 {

namespace {

using namespace cupola;

constexpr const char* folder_name = "cifar-10-batches-bin";
constexpr const char* archive_name = "cifar-10-binary.tar.gz";

/// The part of the archive that was downloaded. The lock ends with the process that holds it, however that ends.
class PartFile {
public:
    /// With `waits`, the constructor returns when the other process that has the file has ended its download, in
    /// whatever way.
    PartFile(const std::string& path, bool waits)
        : path_(path), handle_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
        require<DataError>(handle_ >= 0, path, " cannot be written: ", std::strerror(errno));
        bool locked = flock(handle_, LOCK_EX | LOCK_NB) == 0;
        int error = errno;
        while (!locked && waits && (error == EWOULDBLOCK || error == EINTR)) {
            locked = flock(handle_, LOCK_EX) == 0;
            error = errno;
        }
        if (locked) return;
        // A download that does not wait for others needs no lock where the file system has none.
        if (!waits && impl::is_unsupported(error)) {
            std::fprintf(stderr,
                         "warning: %s cannot be locked (%s): nothing keeps a second download from writing to it\n",
                         path.c_str(), std::strerror(error));
            return;
        }
        close(handle_);
        require<DataError>(error == EWOULDBLOCK, path, " cannot be locked: ", std::strerror(error));
        throw DataError(text(path, " is in use by another process, which is downloading the same file"));
    }
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;
    ~PartFile() {
        if (size() == 0 && is_current()) unlink(path_.c_str());  // nothing was downloaded: no file is left
        close(handle_);
    }
    /// Whether the path still names this file: the process that has been waited for may have removed it.
    [[nodiscard]] bool is_current() const {
        struct stat mine {
        }, named{};
        return fstat(handle_, &mine) == 0 && stat(path_.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
               mine.st_ino == named.st_ino;
    }
    [[nodiscard]] int handle() const { return handle_; }
    [[nodiscard]] std::uint64_t size() const {
        return static_cast<std::uint64_t>(std::max<off_t>(0, lseek(handle_, 0, SEEK_END)));
    }

private:
    std::string path_;
    int handle_;
};

class DownloadOutput {
public:
    explicit DownloadOutput(const DownloadOptions& options)
        : verbose_(options.verbose),
          terminal_(options.verbose && !options.json && isatty(STDOUT_FILENO) == 1),
          output_(options.json) {}

    void line(const std::string& message) {
        end_progress();
        if (verbose_) output_.print_message(message);
    }
    void progress(std::uint64_t there, std::uint64_t whole) {
        if (!terminal_ || whole == 0) return;
        const auto percent = static_cast<int>(100 * there / whole);
        if (percent == shown_) return;
        const double now = monotonic_seconds();
        if (shown_ < 0 || there < first_) {  // a server without ranges sends the file from its beginning
            begun_ = now;
            first_ = there;
        }
        shown_ = percent;
        const double came = static_cast<double>(there - first_), rest = static_cast<double>(whole - there);
        std::printf("\r%3d %% of %s", percent, bytes_text(whole).c_str());
        if (came > 0) std::printf(", %s left", duration_text((now - begun_) / came * rest).c_str());
        std::fflush(stdout);
    }

private:
    void end_progress() {
        if (shown_ >= 0) std::printf("\n");
        shown_ = -1;
    }
    bool verbose_, terminal_;
    StandardOutput output_;
    int shown_ = -1;
    /// The time when the first percentage was shown, and the number of bytes then.
    double begun_ = 0;
    std::uint64_t first_ = 0;
};

std::string lower(std::string digits) {
    for (char& c : digits) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    return digits;
}

/// The error message for a checksum that differs; empty if it does not.
std::string wrong_checksum(const std::string& path, const std::string& what, const DownloadOptions& options) {
    for (const auto& [algorithm, expected] : {std::pair("SHA-256", options.sha256), std::pair("MD5", options.md5)}) {
        if (expected.empty()) continue;
        const std::string found = checksum_of(path, algorithm);
        if (found != lower(expected)) return text(what, " has the ", algorithm, ' ', found, ", not ", lower(expected));
    }
    return {};
}

std::string counted(const ImageData& data) {
    return text(data.train.size(), " training and ", data.test.size(), " test images");
}

/// Unpacks the archive into `folder` and returns a message about its contents. An archive that was `downloaded` and is
/// not the data set is removed: otherwise the next download would continue it and fail in the same way.
std::string unpacked(const std::string& archive, const std::string& folder, bool downloaded) {
    try {
        unpack(archive, folder_name, folder);
        try {
            return counted(read_cifar10(folder));
        } catch (const DataError& cause) {
            throw BadArchive(cause.what());
        }
    } catch (const BadArchive& cause) {
        if (!downloaded) throw;
        unlink(archive.c_str());
        throw DataError(text(cause.what(), "; ", archive, " was removed"));
    }
}

}  // namespace

std::string ensure_cifar10(const std::string& data_dir, const DownloadOptions& options) {
    DownloadOutput output(options);
    // The folder of the files itself.
    if (impl::cifar10_folder(data_dir) == data_dir) {
        output.line(text(data_dir, " exists already: ", counted(read_cifar10(data_dir))));
        return data_dir;
    }
    const std::string folder = text(data_dir, '/', folder_name), whole = text(data_dir, '/', archive_name),
                      part = whole + ".part";
    std::error_code error;
    const auto is_there = [&](bool says_so) {
        if (!std::filesystem::exists(folder, error)) return false;
        if (!says_so) return true;
        try {
            output.line(text(folder, " exists already: ", counted(read_cifar10(folder))));
        } catch (const DataError& cause) {
            throw DataError(text(cause.what(), "; remove ", folder, " to download it again"));
        }
        return true;
    };
    if (is_there(true)) {
        unlink(part.c_str());  // a process that was killed after unpacking may have left the file
        return folder;
    }
    std::filesystem::create_directories(data_dir, error);
    require<DataError>(!error, "the folder ", data_dir, " cannot be created: ", error.message());

    std::optional<PartFile> opened;
    do {
        opened.emplace(part, options.waits);
        if (is_there(false)) return folder;  // another process has downloaded it
    } while (!opened->is_current());
    const PartFile& file = *opened;
    for (std::filesystem::directory_iterator entry(data_dir, error), end; !error && entry != end;
         entry.increment(error)) {
        // The folder of an unpacking that was killed; no other process unpacks now, since this one holds the lock.
        if (entry->path().filename().string().starts_with(text(folder_name, ".part-")))
            remove_folder(entry->path().string());
    }
    require<DataError>(!error, "the folder ", data_dir, " cannot be read: ", error.message());
    std::string archive = whole;
    if (std::filesystem::exists(whole, error)) {
        output.line(text(whole, " exists already"));
        const std::string wrong = wrong_checksum(whole, whole, options);
        require<DataError>(wrong.empty(), wrong, "; remove it to download it again");
    } else {
        archive = part;
        output.line(text(options.url,
                         file.size() > 0 ? text(": resuming after ", bytes_text(file.size())) : std::string(), " -> ",
                         data_dir));
        transfer(options.url, part, file.handle(),
                 [&](std::uint64_t there, std::uint64_t all) { output.progress(there, all); });
        require<DataError>(file.size() > 0, options.url, " is empty");
        const std::string wrong = wrong_checksum(part, text("the file from ", options.url), options);
        if (!wrong.empty()) {
            unlink(part.c_str());
            throw DataError(wrong + "; it was removed");
        }
        output.line(text("downloaded ", bytes_text(file.size()),
                         options.sha256.empty() && options.md5.empty() ? "" : ", checksum verified"));
    }

    const std::string temporary = text(folder, ".part-", getpid());
    try {
        const std::string what = unpacked(archive, temporary, archive == part);
        output.line(text(folder, ": ", what));
        sync_folder(temporary);
        require<DataError>(std::rename(temporary.c_str(), folder.c_str()) == 0, folder,
                           " cannot be written: ", std::strerror(errno));
    } catch (...) {
        remove_folder(temporary);
        throw;
    }
    sync_folder(data_dir);
    unlink(part.c_str());
    return folder;
}

}  // namespace cifar10
