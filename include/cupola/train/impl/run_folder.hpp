// SPDX-License-Identifier: Apache-2.0
//
// The files of a run's folder other than its checkpoints: the log; and a sink for runs without summaries.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cupola/core/error.hpp>
#include <cupola/io/summary_sink.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

using LogFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// Opens <folder>/train.log for appending. Throws DataError if it cannot be written, or if it is a pipe.
[[nodiscard, gnu::cold]] inline LogFile open_log(const std::string& folder) {
    const std::string path = folder + "/train.log";
    // With a pipe the training would wait for a reader; opened with O_NONBLOCK, a pipe without a reader is an error.
    const int handle = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    const int error = errno;
    struct stat status {};
    const bool pipe = handle >= 0 ? fstat(handle, &status) == 0 && S_ISFIFO(status.st_mode) : error == ENXIO;
    if (pipe && handle >= 0) close(handle);
    require<DataError>(!pipe, "the log ", path, " cannot be written: it is a pipe, not a file");
    require<DataError>(handle >= 0, "the log ", path, " cannot be written: ", std::strerror(error));
    fcntl(handle, F_SETFL, O_APPEND);  // writes block again
    LogFile file(fdopen(handle, "a"), &std::fclose);
    require<OutOfMemory>(file != nullptr, "there is not enough memory for the log ", path);
    return file;
}

/// Discards all summaries.
struct NoSummaries final : SummarySink {
    void start(std::int64_t) override {}
    void write(std::int64_t, const StepSummary&) override {}
};

[[nodiscard, gnu::cold]] inline bool is_missing(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) != 0 && errno == ENOENT;
}

}}}  // namespace cupola::CUPOLA_ABI::impl
