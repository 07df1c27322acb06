// SPDX-License-Identifier: Apache-2.0
//
// A file of records in TensorFlow's framing: the length, its masked CRC-32C, the data, its masked CRC-32C. A record
// that could not be written completely is cut off again, so that the file stays readable; a file without any record is
// removed.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>
#include <cupola/core/error.hpp>
#include <cupola/core/write_signals.hpp>
#include <cupola/io/crc32c.hpp>
#include <cupola/io/impl/folder.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr std::string_view event_file_prefix = "events.out.tfevents.";

/// The first number for a new file's name: now, or one more than the last in the folder. TensorBoard reads a folder's
/// files in the order of their names, and two runs may begin within a second.
[[nodiscard]] inline std::int64_t next_event_file_time(const std::string& folder) {
    std::int64_t time = std::time(nullptr);
    for (const std::string& entry : names_in_folder(folder)) {
        std::string_view name = entry;
        if (!name.starts_with(event_file_prefix)) continue;
        name.remove_prefix(event_file_prefix.size());
        std::int64_t of_file = 0;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), of_file);
        constexpr std::int64_t last = 9'999'999'999;  // ten digits: names and times have the same order
        if (error == std::errc{} && of_file >= time && of_file < last) time = of_file + 1;
    }
    return time;
}

/// events.out.tfevents.<time>.<host>.<process>.cupola
[[nodiscard]] inline std::string event_file_name(std::int64_t time) {
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    return text(event_file_prefix, time, '.', static_cast<const char*>(host), '.', getpid(), ".cupola");
}

class EventOutput {
public:
    explicit EventOutput(const std::string& folder) {
        make_folder(folder);
        path_ = text(folder, '/', event_file_name(next_event_file_time(folder)));
        descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        require<DataError>(descriptor_ >= 0, "the event file ", path_, " cannot be created: ", std::strerror(errno));
    }
    EventOutput(const EventOutput&) = delete;
    EventOutput& operator=(const EventOutput&) = delete;
    ~EventOutput() { close(descriptor_); }

    [[nodiscard]] const std::string& path() const { return path_; }

    void write(std::string_view data) {
        record_.clear();
        const std::uint64_t length = data.size();
        append(std::string_view(reinterpret_cast<const char*>(&length), sizeof length));
        append(data);
        std::size_t done = 0;
        const WriteSignalsBlock no_signal;
        while (done < record_.size()) {
            const ssize_t written = ::write(descriptor_, record_.data() + done, record_.size() - done);
            if (written > 0) {
                done += static_cast<std::size_t>(written);
            } else if (written == 0 || errno != EINTR) {
                const int error = written == 0 ? ENOSPC : errno;
                const bool whole = ftruncate(descriptor_, size_) == 0 && lseek(descriptor_, size_, SEEK_SET) == size_;
                if (size_ == 0) unlink(path_.c_str());
                throw_joined<DataError>({"the event file ", path_, " could not be written: ", std::strerror(error),
                                         whole ? "" : "; its last record is incomplete"});
            }
        }
        size_ += static_cast<off_t>(record_.size());
    }

private:
    /// Data and its checksum.
    void append(std::string_view data) {
        record_ += data;
        const std::uint32_t checksum = masked_crc32c(std::as_bytes(std::span(data)));
        record_.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
    }

    std::string path_, record_;
    int descriptor_ = -1;
    off_t size_ = 0;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
