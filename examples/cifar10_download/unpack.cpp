// SPDX-License-Identifier: Apache-2.0
#include "unpack.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/io/atomic_file.hpp>

namespace cifar10 {

namespace {

using namespace cupola;

/// The data set has eight files of 184 MB.
constexpr int max_files = 100;
constexpr std::int64_t max_bytes = 1'000'000'000;

using Archive = std::unique_ptr<archive, int (*)(archive*)>;

[[noreturn]] void fail_damaged(const std::string& path, archive* handle) {
    const char* const said = archive_error_string(handle);
    throw BadArchive(text(path, " is damaged or is not an archive: ", said == nullptr ? "no reason given" : said));
}

class OutputFile {
public:
    explicit OutputFile(std::string path)
        : path_(std::move(path)), handle_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
        check(handle_ >= 0);
    }
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile() {
        if (handle_ >= 0) close(handle_);
    }
    void write(const char* bytes, std::size_t count) {
        while (count > 0) {
            const ssize_t written = ::write(handle_, bytes, count);
            if (written < 0 && errno == EINTR) continue;
            check(written > 0);
            bytes += written;
            count -= static_cast<std::size_t>(written);
        }
    }
    void finish() {
        check(fsync(handle_) == 0 || impl::is_unsupported(errno));
        const int handle = handle_;
        handle_ = -1;
        check(close(handle) == 0);
    }

private:
    void check(bool done) const { require<DataError>(done, path_, " cannot be written: ", std::strerror(errno)); }
    std::string path_;
    int handle_;
};

void unpack_entries(const std::string& path, const std::string& folder, const std::string& to, archive* handle) {
    int files = 0;
    std::int64_t total = 0;
    for (archive_entry* entry = nullptr;;) {
        const int status = archive_read_next_header(handle, &entry);
        if (status == ARCHIVE_EOF) break;
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN) fail_damaged(path, handle);
        const char* const raw = archive_entry_pathname(entry);
        require<BadArchive>(raw != nullptr, path, " contains a file whose name cannot be read");
        std::string_view name = raw;
        if (name.starts_with("./")) name.remove_prefix(2);
        if (archive_entry_filetype(entry) == AE_IFDIR && (name == folder || name == folder + "/" || name.empty()))
            continue;
        const bool inside = name.size() > folder.size() + 1 && name.starts_with(folder) && name[folder.size()] == '/';
        const std::string_view file = inside ? name.substr(folder.size() + 1) : std::string_view();
        const bool plain = archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
        require<BadArchive>(plain && inside && file.find('/') == std::string_view::npos && file != "." && file != "..",
                            path, " contains ", name, ", which is not a plain file in ", folder,
                            "/: nothing was unpacked");
        require<BadArchive>(++files <= max_files, path, " contains more than ", max_files,
                            " files: nothing was unpacked");
        OutputFile output(text(to, '/', file));
        for (;;) {
            char block[1 << 16];
            const la_ssize_t count = archive_read_data(handle, block, sizeof block);
            if (count < 0) fail_damaged(path, handle);
            if (count == 0) break;
            total += count;
            require<BadArchive>(total <= max_bytes, path, " unpacks to more than ", max_bytes,
                                " bytes: nothing was unpacked");
            output.write(block, static_cast<std::size_t>(count));
        }
        output.finish();
    }
    require<BadArchive>(files > 0, path, " contains no files");
}

}  // namespace

void unpack(const std::string& path, const std::string& folder, const std::string& to) {
    const Archive handle(archive_read_new(), &archive_read_free);
    require<OutOfMemory>(handle != nullptr, "libarchive could not allocate memory to read ", path);
    archive_read_support_filter_gzip(handle.get());
    archive_read_support_format_tar(handle.get());
    if (archive_read_open_filename(handle.get(), path.c_str(), 1 << 16) != ARCHIVE_OK) fail_damaged(path, handle.get());
    require<DataError>(mkdir(to.c_str(), 0777) == 0, "the folder ", to, " cannot be created: ", std::strerror(errno));
    try {
        unpack_entries(path, folder, to, handle.get());
    } catch (...) {
        remove_folder(to);
        throw;
    }
}

void remove_folder(const std::string& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    require<DataError>(!error, path, " cannot be removed: ", error.message());
}

}  // namespace cifar10
