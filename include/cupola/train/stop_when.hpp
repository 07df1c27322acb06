// SPDX-License-Identifier: Apache-2.0
//
// StopWhen{condition}: ends the run after the first step for which condition(report) is true, where `report` is a
// StepReport:
//
//   fit(training, batches, {.steps = 10000}, StopWhen{[](const StepReport& r) { return r.loss < 0.1; }});
#pragma once

#include <concepts>
#include <utility>

#include <cupola/train/run.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

template <std::predicate<const StepReport&> Condition>
class StopWhen {
public:
    explicit StopWhen(Condition condition) : condition_(std::move(condition)) {}
    void on_step(const StepReport& report, Run& run) { run.stop = run.stop || condition_(report); }

private:
    Condition condition_;
};

}}  // namespace cupola::CUPOLA_ABI
