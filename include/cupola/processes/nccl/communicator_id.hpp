// SPDX-License-Identifier: Apache-2.0
//
// How the processes of one training obtain NCCL's unique id. Rank 0 creates it and writes it to a file, which is
// complete as soon as it exists; or the program that starts the processes sets the environment variable CUPOLA_NCCL_ID.
// Both contain the bytes of the id as hexadecimal digits.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/parallel/nccl_all_reduce.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

inline constexpr std::size_t communicator_id_bytes = 128;
using CommunicatorId = std::array<char, communicator_id_bytes>;
inline constexpr const char* communicator_id_variable = NcclAllReduce::id_variable;

[[nodiscard, gnu::cold]] inline std::string communicator_id_text(const CommunicatorId& id) {
    std::string digits;
    for (const char byte : id) {
        for (const int shift : {4, 0}) digits += "0123456789abcdef"[(static_cast<unsigned char>(byte) >> shift) & 15];
    }
    return digits;
}

/// Returns nothing if the text is not an id.
[[nodiscard, gnu::cold]] inline std::optional<CommunicatorId> communicator_id_of(std::string_view digits) {
    if (!digits.empty() && digits.back() == '\n') digits.remove_suffix(1);
    if (digits.size() != 2 * communicator_id_bytes) return std::nullopt;
    CommunicatorId id{};
    for (std::size_t i = 0; i < digits.size(); ++i) {
        const char c = digits[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return std::nullopt;
        id[i / 2] = static_cast<char>((static_cast<unsigned char>(id[i / 2]) << 4) | digit);
    }
    return id;
}

/// Writes the file under a temporary name and renames it. Throws DeviceError if the file exists, since it belongs to
/// another training: a rank that read it would wait for ranks that no longer exist.
[[gnu::cold]] inline void write_communicator_id(const std::string& path, const CommunicatorId& id) {
    require<DeviceError>(
        access(path.c_str(), F_OK) != 0, "the file ", path,
        " exists already: each start of a training over several processes needs a new file name for NCCL's id");
    const std::string temporary = text(path, ".partial-", getpid()), digits = communicator_id_text(id) + '\n';
    const int handle = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = handle >= 0;
    for (std::size_t at = 0; written && at < digits.size();) {
        const ssize_t count = write(handle, digits.data() + at, digits.size() - at);
        if (count > 0)
            at += static_cast<std::size_t>(count);
        else
            written = count < 0 && errno == EINTR;
    }
    int error = errno;
    if (handle >= 0 && close(handle) != 0 && written) {
        written = false;
        error = errno;
    }
    if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return;
    if (written) error = errno;
    if (handle >= 0) unlink(temporary.c_str());
    throw DeviceError(text("NCCL's id could not be written to ", path, ": ", std::generic_category().message(error)));
}

/// The id in the file, or nothing if the file does not exist.
[[nodiscard, gnu::cold]] inline std::optional<CommunicatorId> read_communicator_id(const std::string& path) {
    const int handle = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (handle < 0) {
        const int error = errno;
        require<DeviceError>(error == ENOENT, "NCCL's id could not be read from ", path, ": ",
                             std::generic_category().message(error));
        return std::nullopt;
    }
    std::string digits(2 * communicator_id_bytes + 2, '\0');
    std::size_t size = 0;
    for (ssize_t count = 1; size < digits.size() && count != 0;) {
        count = read(handle, digits.data() + size, digits.size() - size);
        if (count > 0)
            size += static_cast<std::size_t>(count);
        else if (count < 0 && errno != EINTR)
            break;
    }
    close(handle);
    const auto id = communicator_id_of(std::string_view(digits).substr(0, size));
    require<DeviceError>(id.has_value(), "the file ", path, " does not contain an id of NCCL: it has ", size,
                         " bytes, and an id has ", 2 * communicator_id_bytes, " hexadecimal digits");
    return id;
}

/// The id in the environment variable, or nothing if it is not set.
[[nodiscard, gnu::cold]] inline std::optional<CommunicatorId> communicator_id_of_environment() {
    const char* const digits = std::getenv(communicator_id_variable);
    if (digits == nullptr) return std::nullopt;
    const auto id = communicator_id_of(digits);
    require<DeviceError>(id.has_value(), "the environment variable ", communicator_id_variable,
                         " does not contain an id of NCCL: an id has ", 2 * communicator_id_bytes,
                         " hexadecimal digits");
    return id;
}

/// Waits for rank 0's file. `clock` returns the time in seconds; `pause` is called between two polls.
template <class Clock, class Pause>
[[nodiscard, gnu::cold]] CommunicatorId await_communicator_id(const std::string& path, double seconds, Clock clock,
                                                              Pause pause) {
    const double start = clock();
    for (;;) {
        if (const auto id = read_communicator_id(path)) return *id;
        require<DeviceError>(clock() - start < seconds, "rank 0 has not written NCCL's id to ", path, " within ",
                             seconds, " s: check that it was started, with the same id_file");
        pause();
    }
}

}}}  // namespace cupola::CUPOLA_ABI::impl
