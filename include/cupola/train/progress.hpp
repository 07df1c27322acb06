// SPDX-License-Identifier: Apache-2.0
//
// ProgressLine: shows on a terminal one line of standard error that is overwritten: the progress and the remaining
// time. The cursor stays at its beginning, so that a line of the log overwrites it. Prints nothing if standard error is
// not a terminal. Progress{}: the callback of `fit` that shows such a line, with the number of steps and the loss.
#pragma once

#include <cstdint>
#include <cstdio>

#include <unistd.h>

#include <cupola/core/duration_text.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/train/loss_text.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

class ProgressLine {
public:
    ProgressLine() : ProgressLine(isatty(fileno(stderr)) != 0, stderr) {}
    /// `shown` is set by the program.
    ProgressLine(bool shown, std::FILE* file) : shown_(shown), file_(file) {}

    /// Shows "<done> of <all> <what>, 0:01:30 left", for work that began at `started`, a time of `monotonic_seconds`;
    /// at most five times per second, but always at the end.
    void show(std::int64_t done, std::int64_t all, const char* what, double started) {
        if (!shown_) return;
        const double now = monotonic_seconds();
        constexpr double interval = 0.2;
        if (now - last_ < interval && done < all) return;
        last_ = now;
        const double left = (now - started) / static_cast<double>(done) * static_cast<double>(all - done);
        std::fprintf(file_, "\r\033[K%lld of %lld %s, %s left\r", static_cast<long long>(done),
                     static_cast<long long>(all), what, duration_text(left).c_str());
        std::fflush(file_);
    }

    /// Removes the line.
    void clear() {
        if (!shown_) return;
        std::fputs("\r\033[K", file_);
        std::fflush(file_);
    }

private:
    bool shown_;
    std::FILE* file_;
    double last_ = 0;
};

class Progress {
public:
    Progress() = default;
    /// `shown` is set by the program.
    Progress(bool shown, std::FILE* file) : line_(shown, file) {}

    void on_step(const StepReport& report, Run& run) {
        char what[64];
        std::snprintf(what, sizeof what, "steps, loss %s", loss_text(report.loss, 3).c_str());
        line_.show(report.step + 1 - run.first_step, run.last_step - run.first_step, what, run.started);
    }

    void on_end(Run&) { line_.clear(); }

private:
    ProgressLine line_;
};

}}  // namespace cupola::CUPOLA_ABI
