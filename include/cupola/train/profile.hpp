// SPDX-License-Identifier: Apache-2.0
//
// profile(training, batches, {.steps = 20}): the times of the parts of a training step, as a table.
//
//   std::fputs(to_string(profile(training, batches)).c_str(), stdout);
//
// It makes ordinary training steps and measures the time of each of their parts on the first device: every operation of
// the network, forward and backward, and the work around them. The time of a part is the median over the steps of its
// time in one step, for all replicas and batches of the device; "the rest" is the time outside all parts. A part's
// roofline is the longer of two times, at rates that are measured on the same device at the start:
//
//   computing      its multiply-adds at the rate of a large matrix product; for an operation whose algorithm computes
//                  something else (OperationWork), that at the rate of vectors in registers
//   transferring   the bytes that it reads and writes, at the rate of a copy: as many of a call's as a level of caches
//                  holds at the rate of that level, the others at the rate of the next one, and those beyond all caches
//                  at that of memory. On a processor, what is written and was not read counts twice.
//
// No part is faster, as far as the rates are right: a cache never has more of a part's data than it holds.
#pragma once

#include <cstdint>

#include <cupola/core/error.hpp>
#include <cupola/core/monotonic_seconds.hpp>
#include <cupola/net/step_times.hpp>
#include <cupola/ops/peak_rates.hpp>
#include <cupola/train/impl/profile_parts.hpp>
#include <cupola/train/step_profile.hpp>

namespace cupola { inline namespace CUPOLA_ABI {

struct ProfileOptions {
    /// The number of timed steps, and of untimed steps before them.
    std::int64_t steps = 20;
    std::int64_t warm_up = 5;
};

/// Makes `warm_up + steps` steps of training and returns the times of their parts.
template <class Training, class Batches>
[[nodiscard]] StepProfile profile(Training& training, Batches&& batches, const ProfileOptions& options = {}) {
    constexpr std::int64_t limit = 100'000;
    require(options.steps >= 1 && options.steps <= limit, "a profile must have 1 to ", limit, " steps, not ",
            options.steps);
    require(options.warm_up >= 0, "a profile must have 0 or more steps before it, not ", options.warm_up);
    using Net = typename Training::NetworkType;
    const PeakRates rates = training.peak_rates();
    std::int64_t samples = 0;
    for (std::int64_t i = 0; i < options.warm_up; ++i) training.step(batches);
    StepTimes times(Net::layers.size(), options.steps);
    {
        const impl::TimedTraining timed(training, times);
        for (std::int64_t i = 0; i < options.steps; ++i) {
            const double begun = monotonic_seconds();
            samples += training.step(batches).samples;
            times.end_step(monotonic_seconds() - begun);
        }
    }
    std::int64_t regularized = 0;
    for (const auto& parameter : Training::LossType::regularized(Net::layers)) regularized += parameter.size;
    return impl::ProfileParts(times,
                              {.layers = Net::layers,
                               .fusion = Net::fusion,
                               .element_bytes = sizeof(typename Net::Precision::Activation),
                               .replicas = training.options.replicas,
                               .devices = training.options.devices,
                               .samples_per_step = static_cast<double>(samples) / static_cast<double>(options.steps),
                               .state_arenas = training.options.optimizer.state_arenas(),
                               .parameter_elements = Net::trained_count,
                               .regularized_elements = regularized})
        .find(rates);
}

}}  // namespace cupola::CUPOLA_ABI
