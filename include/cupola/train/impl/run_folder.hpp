// SPDX-License-Identifier: Apache-2.0
//
// What a run needs of the folder that it keeps its files in: the log, and the checkpoint that it goes on from, compared with
// the run that it is.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/io/checkpoint_directory.hpp>
#include <cupola/io/checkpoint_info.hpp>
#include <cupola/io/summary_sink.hpp>
#include <cupola/train/checkpoint_every.hpp>

namespace cupola::inline CUPOLA_ABI::impl {

using LogFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// <folder>/train.log, appended to. Throws DataError where it cannot be written, and for a pipe.
[[nodiscard, gnu::cold]] inline LogFile open_log(const std::string& folder) {
    const std::string path = folder + "/train.log";
    // A pipe would let the training wait for someone to read it; without waiting, one that nobody reads is an error.
    const int handle = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    const int error = errno;
    struct stat status {};
    const bool pipe = handle >= 0 ? fstat(handle, &status) == 0 && S_ISFIFO(status.st_mode) : error == ENXIO;
    if (pipe && handle >= 0) close(handle);
    require<DataError>(!pipe, "the log ", path, " cannot be written: it is a pipe, and no file");
    require<DataError>(handle >= 0, "the log ", path, " cannot be written: ", std::strerror(error));
    fcntl(handle, F_SETFL, O_APPEND);  // writes wait again
    LogFile file(fdopen(handle, "a"), &std::fclose);
    require<OutOfMemory>(file != nullptr, "there is no memory for the log ", path);
    return file;
}

/// Takes no summary.
struct NoSummaries final : SummarySink {
    void start(std::int64_t) override {}
    void write(std::int64_t, const StepSummary&) override {}
};

[[nodiscard, gnu::cold]] inline bool is_missing(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) != 0 && errno == ENOENT;
}

/// What differs between two runs: of the run itself, and of the machine that it runs on.
struct RunDifferences {
    std::string run, bits;
};

[[nodiscard, gnu::cold]] inline RunDifferences differences_of_runs(const CheckpointInfo& before,
                                                                   const CheckpointInfo& now) {
    // The bits of a result depend on these, the run's course does not.
    constexpr std::array<std::string_view, 8> machine{"convolution", "threads_per_device", "onednn", "isa", "gpu",
                                                      "cuda",        "deterministic",      "ranks"};
    RunDifferences result;
    for (const InfoDifference& difference : differences(before, now)) {
        const std::string& key = difference.key;
        if (key == images_seen_key || key == losses_key || key == CheckpointDirectory::metric_key) continue;
        std::string& list = std::ranges::find(machine, key) != machine.end() ? result.bits : result.run;
        list += text(list.empty() ? "" : "; ", to_string(difference));
    }
    return result;
}

}  // namespace cupola::inline CUPOLA_ABI::impl
