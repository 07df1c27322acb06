// SPDX-License-Identifier: Apache-2.0
//
// What a loss on `Cuda` leaves of a batch, for the host to read later.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI {

/// What a loss leaves in memory that the host reads later.
struct LossReport {
    /// The sum over the samples; no number where a label is no class.
    double sum;
    std::int64_t correct;
    /// The first sample whose label is no class, -1 where there is none, and that label.
    std::int64_t bad_sample;
    std::int32_t bad_label;
};

namespace impl {

CUPOLA_HOST_DEVICE inline void add_report(LossReport& to, const LossReport& other) {
    to.sum += other.sum;
    to.correct += other.correct;
    if (other.bad_sample >= 0 && (to.bad_sample < 0 || other.bad_sample < to.bad_sample)) {
        to.bad_sample = other.bad_sample;
        to.bad_label = other.bad_label;
    }
}

/// What a report that is there says. Throws InvalidArgument for a label that is no class.
[[nodiscard]] inline LossResult result_of(const LossReport& report, std::int64_t classes) {
    require(report.bad_sample < 0, "sample ", report.bad_sample, " of the batch has label ", report.bad_label,
            ", and the loss has classes 0 to ", classes - 1);
    return {.sum = report.sum, .correct = report.correct};
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
