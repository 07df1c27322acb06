// SPDX-License-Identifier: Apache-2.0
//
// Progress{}: on a terminal, one line of standard error that is written over: steps made, the loss, the time left. The
// cursor waits at its beginning, for a line of the log to be written over it.
// Where standard error is no terminal it prints nothing.
#pragma once

#include <cstdint>
#include <cstdio>

#include <unistd.h>

#include <cupola/train/run.hpp>

namespace cupola::inline CUPOLA_ABI {

class Progress {
public:
    Progress() : Progress(isatty(fileno(stderr)) != 0, stderr) {}
    /// For a program that decides itself.
    Progress(bool shown, std::FILE* file) : shown_(shown), file_(file) {}

    void on_step(const StepReport& report, Run& run) {
        if (!shown_) return;
        const double now = monotonic_seconds();
        constexpr double interval = 0.2;
        if (now - last_ < interval && report.step + 1 < run.last_step) return;
        last_ = now;
        const std::int64_t done = report.step + 1 - run.first_step, all = run.last_step - run.first_step;
        const auto left =
            static_cast<long long>((now - run.started) / static_cast<double>(done) * static_cast<double>(all - done));
        std::fprintf(file_, "\r\033[K%lld of %lld steps, loss %.3f, %lld:%02lld:%02lld left\r",
                     static_cast<long long>(done), static_cast<long long>(all), report.loss, left / 3600,
                     left / 60 % 60, left % 60);
        std::fflush(file_);
    }

    void on_end(Run&) {
        if (!shown_) return;
        std::fputs("\r\033[K", file_);
        std::fflush(file_);
    }

private:
    bool shown_;
    std::FILE* file_;
    double last_ = 0;
};

}  // namespace cupola::inline CUPOLA_ABI
