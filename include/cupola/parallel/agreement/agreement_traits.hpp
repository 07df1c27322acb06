// SPDX-License-Identifier: Apache-2.0
//
// AgreementTraits and UpdateGradient: what an agreement says about itself, and what it gives to the update.
#pragma once

#include <cstdint>

#include <cupola/core/abi.hpp>

namespace cupola { inline namespace CUPOLA_ABI { namespace impl {

/// The members have the meaning of those of ReplicaSettings.
struct AgreementTraits {
    bool own_parameters = false, separate_average = false, averages_rows_of_all = false;
    /// Whether it takes the gradient in buckets while backward passes run. They are then marked in the queue, and a row
    /// is not completed before them.
    bool takes_buckets = false;
    std::int64_t sums = 0, bucket_elements = 0;
};

/// The gradient that an optimiser updates parameters with, and the divisor that made it the mean; both in the device's
/// memory.
struct UpdateGradient {
    const float* values = nullptr;
    const float* divisor = nullptr;
};

}}}  // namespace cupola::CUPOLA_ABI::impl
