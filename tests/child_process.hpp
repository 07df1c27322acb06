// SPDX-License-Identifier: Apache-2.0
//
// Tests in other processes. `run_in_child` runs one test case of this executable again in its own process, with other environment variables: variables that a
// runtime reads only once, when it starts (OMP_THREAD_LIMIT, ONEDNN_MAX_CPU_ISA), cannot be tested otherwise. The case
// is marked `doctest::skip()`, so that only the child runs it.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.hpp"

struct ChildResult {
    bool passed = false;
    std::string output;
    /// The exit status; -1 if a signal ended the child.
    int status = -1;
};

/// `passed` says that the case named `test_case` was found, ran and passed; `output` is what the child printed.
[[nodiscard]] inline ChildResult run_in_child(const std::string& test_case,
                                              const std::vector<std::pair<std::string, std::string>>& variables) {
    std::vector<std::string> words{"/proc/self/exe", "--no-skip", "--no-colors", "--test-case=" + test_case};
    std::vector<std::string> settings;
    for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
    for (char** inherited = environ; *inherited != nullptr; ++inherited) {
        const std::string entry(*inherited);
        bool replaced = false;
        for (const auto& [name, value] : variables) replaced = replaced || entry.rfind(name + "=", 0) == 0;
        if (!replaced) settings.push_back(entry);
    }
    const auto pointers = [](std::vector<std::string>& strings) {
        std::vector<char*> result;
        for (std::string& string : strings) result.push_back(string.data());
        result.push_back(nullptr);
        return result;
    };
    std::vector<char*> arguments = pointers(words), environment = pointers(settings);

    ChildResult result;
    int ends[2];
    // Other children, which other threads start meanwhile, must not keep the pipe open.
    if (pipe2(ends, O_CLOEXEC) != 0) return result;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    pid_t child = 0;
    const bool started =
        posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data()) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char buffer[4096];
    for (ssize_t got = 0; started && (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
        result.output.append(buffer, static_cast<std::size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    if (!started || waitpid(child, &status, 0) != child) return result;
    // A filter that matches nothing also ends with 0: the summary must name the one case that passed. Its columns are as
    // wide as the number of assertions.
    const std::size_t summary = result.output.rfind("test cases:");
    int cases = 0, passed = 0;
    const bool counted =
        summary != std::string::npos &&
        std::sscanf(result.output.c_str() + summary, "test cases: %d | %d passed", &cases, &passed) == 2;
    if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
    result.passed = WIFEXITED(status) && WEXITSTATUS(status) == 0 && counted && cases == 1 && passed == 1;
    return result;
}

/// Runs a test case in a process of its own, where it must pass.
inline void check_in_child(const std::string& name, const std::vector<std::pair<std::string, std::string>>& variables) {
    const ChildResult child = run_in_child(name, variables);
    CAPTURE(name);
    INFO(child.output);
    CHECK(child.passed);
}

/// The wait status of a process that does `work`: 0 where it returns, an exit with 1 where it throws.
template <class Work>
[[nodiscard]] int wait_status_of(Work&& work) {
    std::fflush(nullptr);  // or the child would print again what is waiting here
    const pid_t child = fork();
    if (child == 0) {
        try {
            work();
            _exit(0);
        } catch (...) {
            _exit(1);
        }
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/// The result of `f` in a process of its own, with its own limits and signals.
inline std::string in_child(const std::function<std::string()>& f) {
    int ends[2];
    if (pipe(ends) != 0) return "(no pipe)";
    std::fflush(nullptr);  // or the child would print again what is waiting here
    const pid_t child = fork();
    if (child == 0) {
        const std::string result = f();
        const ssize_t written = write(ends[1], result.data(), result.size());
        _exit(written < 0 ? 1 : 0);
    }
    close(ends[1]);
    std::string result;
    char buffer[256];
    for (ssize_t got = read(ends[0], buffer, sizeof buffer); got > 0; got = read(ends[0], buffer, sizeof buffer)) {
        result.append(buffer, static_cast<std::size_t>(got));
    }
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return result;
}
