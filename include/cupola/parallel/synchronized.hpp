// SPDX-License-Identifier: Apache-2.0
//
// Synchronized, the policy for the running statistics (parallel/statistics.hpp) by which batch normalisation uses the
// mean and the variance of the whole global batch, also in forward and backward: R replicas equal one with the whole
// batch. The replicas then run in step. A policy of your own that is `synchronized` needs this header too.
#pragma once

#include <string_view>

#include <cupola/parallel/statistics.hpp>
#include <cupola/parallel/step/synchronized_passes.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct Synchronized {
    static constexpr std::string_view name = "synchronized";
    static constexpr bool synchronized = true;
    void update(const StatisticsUpdate& u) const noexcept { u.take_pooled(); }
};

}}  // namespace cupola::CUPOLA_ABI
