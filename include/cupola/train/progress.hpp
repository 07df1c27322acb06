// SPDX-License-Identifier: Apache-2.0
//
// Progress{}: on a terminal, one line of standard error that is overwritten: steps made, the loss, the remaining time
// (see train/progress_line.hpp).
#pragma once

#include <cstdint>
#include <cstdio>

#include <cupola/train/loss_text.hpp>
#include <cupola/train/progress_line.hpp>
#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

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
