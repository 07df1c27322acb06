// SPDX-License-Identifier: Apache-2.0
//
// ProcessId: identifies a process of this machine for other processes: its PID and its PID namespace. The same PID
// refers to another process, or none, in another namespace, and each container of a machine may have its own.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cupola/core/error.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

struct ProcessId {
    /// The PID; and the PID namespace: the inode of /proc/self/ns/pid, or -1 if that is unknown.
    std::int64_t number = 0, pid_namespace = -1;

    /// The id of this process.
    [[nodiscard, gnu::cold]] static ProcessId own() {
        struct stat status {};
        const bool known = stat("/proc/self/ns/pid", &status) == 0;
        return {.number = getpid(), .pid_namespace = known ? static_cast<std::int64_t>(status.st_ino) : -1};
    }
    /// Whether both processes are in the same PID namespace.
    [[nodiscard]] bool shares_pid_namespace_with(const ProcessId& other) const {
        return pid_namespace != -1 && pid_namespace == other.pid_namespace;
    }
};

/// Whether a process with this PID exists and has not ended. A zombie, whose parent has not waited for it, has ended.
[[nodiscard, gnu::cold]] inline bool process_exists(std::int64_t id) {
    if (kill(static_cast<pid_t>(id), 0) != 0 && errno == ESRCH) return false;
    const int file = open(text("/proc/", id, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno != ENOENT;
    char line[512] = {};
    const ssize_t length = read(file, line, sizeof line - 1);
    close(file);
    if (length <= 0) return errno != ESRCH;
    // <id> (<name>) <state>: the name may have any characters.
    const char* const name_end = std::strrchr(line, ')');
    const char state = name_end != nullptr && name_end[1] == ' ' ? name_end[2] : '?';
    return state != 'Z' && state != 'X';
}

}}}  // namespace cupola::CUPOLA_ABI::impl
