// SPDX-License-Identifier: Apache-2.0
//
// LogEvery{10}: a line on standard output every 10 steps, in the shape of TensorFlow's CIFAR-10 tutorial, so that what
// parses its logs parses ours:
//
//   2026-11-21 03:16:29.123456: step 10, loss = 4.66 (2512.3 examples/sec; 0.102 sec/batch)
//
// The loss is the mean over the replicas' totals (the tutorial printed the last replica's). examples/sec counts all
// replicas over the steps since the last line; sec/batch is the time of a whole step (the tutorial divided it by the
// number of replicas).
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <cupola/core/error.hpp>
#include <cupola/train/run.hpp>

namespace cupola::inline CUPOLA_ABI {

class LogEvery {
public:
    /// A line every `steps` steps, the first at step 0; `steps` 0 for none. `file` is not closed.
    explicit LogEvery(std::int64_t steps, std::FILE* file = stdout) : every_(steps), file_(file) {
        require(steps >= 0, "a line is logged every 0 (never) or more steps, not ", steps);
    }

    void on_begin(Run& run) { last_ = run.started; }

    void on_step(const StepReport& report, Run&) {
        samples_ += report.samples;
        ++steps_;
        if (every_ == 0 || report.step % every_ != 0) return;
        const double now = monotonic_seconds(), seconds = now - last_;
        std::timespec time{};
        std::timespec_get(&time, TIME_UTC);
        std::tm local{};
        localtime_r(&time.tv_sec, &local);
        char date[32];
        std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
        const int written = std::fprintf(file_, "%s.%06ld: step %lld, loss = %.2f (%.1f examples/sec; %.3f sec/batch)\n", date,
                     time.tv_nsec / 1000, static_cast<long long>(report.step), report.loss,
                     static_cast<double>(samples_) / seconds, seconds / static_cast<double>(steps_));
        const bool kept = written > 0 && std::fflush(file_) == 0;
        require<DataError>(kept, "the log line of step ", report.step, " could not be written: ", std::strerror(errno));
        last_ = now;
        samples_ = steps_ = 0;
    }

private:
    std::int64_t every_;
    std::FILE* file_;
    double last_ = 0;
    std::int64_t samples_ = 0, steps_ = 0;
};

}  // namespace cupola::inline CUPOLA_ABI
