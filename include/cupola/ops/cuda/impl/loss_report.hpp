// SPDX-License-Identifier: Apache-2.0
//
// The report of a loss on `Cuda` for one batch, which the host reads later.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>
#include <cupola/core/error.hpp>
#include <cupola/ops/softmax_cross_entropy.hpp>

namespace cupola::inline CUPOLA_ABI {

namespace impl {

CUPOLA_HOST_DEVICE inline void add_report(LossReport& to, const LossReport& other) {
    to.sum += other.sum;
    to.correct += other.correct;
    if (other.bad_sample >= 0 && (to.bad_sample < 0 || other.bad_sample < to.bad_sample)) {
        to.bad_sample = other.bad_sample;
        to.bad_label = other.bad_label;
    }
}

}  // namespace impl

}  // namespace cupola::inline CUPOLA_ABI
